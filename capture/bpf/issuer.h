/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The thread that gave a bio to the block layer, where a kernel thread gives it to the drive.
 *
 * A bio above a limit of its cgroup waits there, and a kernel worker gives it to the drive, where the first tracepoint
 * is. The limiter is called by the issuing thread, but has no tracepoint: a program is attached to the function. Where
 * the kernel refuses that, the thread is the worker, and the workload's I/O is recognized by its group.
 *
 * A volume may submit bios of its own: dm-crypt does it for each write. block_bio_remap has the bio for the drive, and
 * the volume and the sector of the bio for which it is; there the issuing thread was when it entered the volume.
 */
#pragma once

#include "causes/wakes.h"
#include "drive.h"
#include "files.h"
#include "threads.h"

/* "kworker/" */
#define KWORKER 0x2f72656b726f776bull

struct issuer {
	/* Of the bio: another one at its address differs in one of them. */
	__u64 group;
	__u64 disk;
	__u64 sector;
	__u64 end_sector;
	__u64 entered_ns;
	__u64 waited_submit_ns;
	__u64 waited_complete_ns;
	struct thread_times times;
	__u64 volume_end_sector; /* of a bio that entered a volume; 0: unknown */
	/* Of a bio of a volume, with files. */
	__u64 inode;
	__u64 cgroup;
	__u32 flags; /* FLAG_OWN, FLAG_INHERITED, FLAG_DEFERRED */
	__s32 tid;
	__s32 cpu;
	__u32 has_file;
};

/* Of bios that the limiter saw or that a volume submitted, by address. No event says that the bio has ended. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct issuer);
} issuers SEC(".maps");

struct volume_place {
	__u64 sector;
	__u64 volume; /* major << 20 | minor */
};

/* Of the bios that entered a volume there last, and of the parts into which it split them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct volume_place);
	__type(value, struct issuer);
} entered SEC(".maps");

#define GROUP_HAS_OWN 1
#define GROUP_HAS_OTHERS 2
#define MAX_GROUPS 1024

/* Whose I/O a group has had. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_GROUPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u8);
} groups SEC(".maps");

/* The address of the group of a bio on its drive; 0: the root, which has no limit. */
static __always_inline __u64 group_of(struct bio *bio)
{
	struct blkcg_gq *group;

	if (!bio || !bpf_core_field_exists(bio->bi_blkg))
		return 0;
	group = BPF_CORE_READ(bio, bi_blkg);
	return group && BPF_CORE_READ(group, parent) ? (__u64)group : 0;
}

/* Its end stays where it is if parts are split off its front. */
static __always_inline __u64 end_sector_of(struct bio *bio)
{
	return BPF_CORE_READ(bio, bi_iter.bi_sector) + (BPF_CORE_READ(bio, bi_iter.bi_size) >> 9);
}

static __always_inline __u64 disk_at(struct bio *bio)
{
	return bpf_core_field_exists(bio->bi_bdev) ? (__u64)BPF_CORE_READ(bio, bi_bdev, bd_disk) : 0;
}

static __always_inline void note_issuer(struct bio *bio, struct issuer *issuer)
{
	__u64 key = (__u64)bio;

	issuer->group = group_of(bio);
	issuer->disk = disk_at(bio);
	issuer->sector = BPF_CORE_READ(bio, bi_iter.bi_sector);
	issuer->end_sector = end_sector_of(bio);
	bpf_map_update_elem(&issuers, &key, issuer, BPF_ANY);
}

static __always_inline const struct issuer *noted_issuer(struct bio *bio)
{
	const struct issuer *issuer;
	__u64 key;

	bio = whole_bio(bio);
	key = (__u64)bio;
	issuer = bpf_map_lookup_elem(&issuers, &key);
	if (!issuer || issuer->disk != disk_at(bio) || issuer->end_sector != end_sector_of(bio) ||
	    issuer->group != group_of(bio))
		return NULL;
	return issuer;
}

static __always_inline struct issuer current_issuer(struct task_struct *current)
{
	__s32 tid = current_tid(current);
	struct thread_entry *thread = current_thread(current, tid);
	struct issuer issuer = {
		.waited_submit_ns = thread ? thread->woken_submit_ns : 0,
		.waited_complete_ns = thread ? thread->woken_complete_ns : 0,
		.tid = tid,
		.cpu = bpf_get_smp_processor_id(),
	};

	if (issuer.waited_complete_ns && thread && thread->inherited)
		issuer.flags |= FLAG_INHERITED;
	issuer.times = current_times(thread, current);
	if (is_own(thread))
		issuer.flags |= FLAG_OWN;
	emit_wake(thread, issuer.flags & FLAG_OWN);
	return issuer;
}

static __always_inline bool in_kworker(struct task_struct *current)
{
	__u64 comm[2];

	current_comm(current, comm);
	return comm[0] == KWORKER;
}

/*
 * The issuer of a bio that another thread submits after a limit, or any thread for a volume, whose bio may have other
 * pages; NULL: unknown.
 */
static __always_inline const struct issuer *earlier_issuer(struct bio *bio, struct task_struct *current)
{
	if (!bio || !(config.volumes || (config.sees_limiter && in_kernel_thread(current))))
		return NULL;
	return noted_issuer(bio);
}

/* Whether a read or a direct write of a worker is of a group with the workload alone. Notes the groups of others. */
static __always_inline bool is_of_own_group(struct bio *bio, const struct slot *slot,
					    struct task_struct *current, bool own)
{
	__u64 group = group_of(bio);
	__u8 *known, who = own ? GROUP_HAS_OWN : GROUP_HAS_OTHERS;

	if (!group)
		return false;
	known = bpf_map_lookup_elem(&groups, &group);
	if (in_kworker(current))
		return known && *known == GROUP_HAS_OWN && (slot->op == OP_READ || slot->flags & FLAG_IDLE);
	if (known)
		who |= *known;
	if (!known || *known != who)
		bpf_map_update_elem(&groups, &group, &who, BPF_ANY);
	return false;
}

/* The limiter is called, for a bio or for the rest of one that was split. Writeback is attributed by its files. */
static __always_inline void on_limit(struct bio *bio)
{
	__u32 number = number_of_disk(bio);
	struct task_struct *current = current_task();
	__u64 key = (__u64)bio;
	const struct issuer *noted;
	struct issuer issuer;

	if (device_index(number, false) < 0 && device_index(number, true) < 0 && !(config.volumes && is_of_volume(bio)))
		return;
	if (in_kernel_thread(current)) {
		noted = noted_issuer(bio);
		if (noted && noted->sector == BPF_CORE_READ(bio, bi_iter.bi_sector))
			bpf_map_delete_elem(&issuers, &key); /* of an earlier bio */
		return;
	}
	issuer = current_issuer(current);
	issuer.entered_ns = bpf_ktime_get_ns();
	note_issuer(bio, &issuer);
}
