/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Entry into the block layer, in the context of the thread that causes the I/O: later events run in any context. */
#pragma once

#include "files.h"
#include "issuer.h"
#include "maps.h"
#include "request.h"
#include "threads.h"

/* Whether the submitting thread waits for this bio. */
static __always_inline bool is_waited_for(struct bio *bio)
{
	struct iomap_dio *direct;
	__u64 end;

	if (!bio)
		return false;
	end = (__u64)READ(bio, bi_end_io);
	if (config.end_of_waited_bio && end == config.end_of_waited_bio)
		return true;
	if (!config.end_of_direct_io || end != config.end_of_direct_io)
		return false;
	direct = BPF_CORE_READ(bio, bi_private);
	return BPF_CORE_READ(direct, wait_for_completion);
}

/* Records the thread, the completion that it waited for, and with files the file. The slot must have op and flags. */
static __always_inline void enter_thread(struct slot *slot, struct bio *bio)
{
	struct task_struct *current = current_task();
	const struct issuer *earlier = earlier_issuer(bio, current);
	struct issuer issuer = earlier ? *earlier : current_issuer(current);

	if (earlier && slot->start_ns)
		slot->start_ns = issuer.entered_ns;
	slot->resubmitted = earlier && issuer.tid != current_tid(current);
	slot->tid = issuer.tid;
	slot->cpu = issuer.cpu;
	slot->waited_submit_ns = issuer.waited_submit_ns;
	slot->waited_complete_ns = issuer.waited_complete_ns;
	slot->times = issuer.times;
	slot->flags |= issuer.flags;
	if (config.own && !config.sees_limiter && is_of_own_group(bio, slot, current, issuer.flags & FLAG_OWN))
		slot->flags |= FLAG_OWN;
	slot->waited_for = is_waited_for(bio);
	if (config.files && issuer.has_file) {
		slot->inode = issuer.inode;
		slot->cgroup = issuer.cgroup;
	} else if (config.files) {
		attribute(slot, bio, current, earlier != NULL);
	}
	slot->skipped = config.own_only && !(slot->flags & FLAG_OWN);
	slot->used = 1;
}

#define MD_MAJOR 9
#define IS_END (1ull << 63)
/* raid5 passes on single pages, also for parity and for other bios. */
#define PAGE_OF_RAID5_BYTES 4096

/* The slot has the thread with which a bio enters a volume at this sector. */
static __always_inline void note_entry(struct bio *bio, __u64 sector, const struct slot *slot, __u64 entered_ns)
{
	struct volume_place place = { .sector = sector, .volume = number_of_disk(bio) };
	struct issuer issuer = {
		.entered_ns = entered_ns,
		.waited_submit_ns = slot->waited_submit_ns,
		.waited_complete_ns = slot->waited_complete_ns,
		.times = slot->times,
		.inode = slot->inode,
		.cgroup = slot->cgroup,
		.flags = slot->flags & (FLAG_OWN | FLAG_INHERITED | FLAG_DEFERRED),
		.tid = slot->tid,
		.cpu = slot->cpu,
		.has_file = config.files,
		.volume_end_sector = READ(bio, bi_iter.bi_sector) == sector ? end_sector_of(bio) : 0,
	};
	const struct issuer *before;

	if (!sector && (before = bpf_map_lookup_elem(&entered, &place)))
		issuer.end_sector = before->end_sector;
	bpf_map_update_elem(&entered, &place, &issuer, BPF_ANY);
	if (place.volume >> 20 == MD_MAJOR) {
		/* Of a bio that was split off its front: the front ends where it begins. */
		place.sector = (issuer.volume_end_sector ? issuer.volume_end_sector : sector) | IS_END;
		bpf_map_update_elem(&entered, &place, &issuer, BPF_ANY);
	}
}

/*
 * An array submits the rest of a bio without an event: raid10 after its front, raid0 before that, as a copy. So the
 * thread is found by the end of the bio, too, and the front notes it where the rest begins.
 */
static __always_inline struct issuer *find_rest(struct volume_place place, struct bio *bio)
{
	__u32 length_bytes = READ(bio, bi_iter.bi_size);

	if (place.volume >> 20 != MD_MAJOR || length_bytes <= PAGE_OF_RAID5_BYTES)
		return NULL;
	place.sector = (place.sector + (length_bytes >> 9)) | IS_END;
	return bpf_map_lookup_elem(&entered, &place);
}

static __always_inline void note_rest(struct volume_place place, struct bio *bio, const struct issuer *issuer)
{
	__u32 length_bytes = READ(bio, bi_iter.bi_size);

	place.sector += length_bytes >> 9;
	if (length_bytes > PAGE_OF_RAID5_BYTES && place.sector < issuer->volume_end_sector)
		bpf_map_update_elem(&entered, &place, issuer, BPF_ANY);
}

/* A bio enters a volume, or the rest of a bio of a volume does. */
static __always_inline void enter_volume(struct bio *bio, __u64 sector)
{
	__u32 command = READ(bio, bi_opf);
	struct slot slot = { .op = trace_op_of(command), .start_ns = bpf_ktime_get_ns() };

	slot.flags = trace_flags_of(command, slot.op, 0);
	enter_thread(&slot, bio);
	note_entry(bio, sector, &slot, slot.start_ns);
}

/*
 * md names sector 0 of the volume for parity, too. Of both, the data of sector 0 is on the first sector of a drive that
 * was named so (end_sector of `from`); what is behind it is parity.
 */
static __always_inline bool is_parity(struct bio *bio, const struct volume_place *place, struct issuer *from)
{
	__u64 end_sector = READ(bio, bi_iter.bi_sector) + 1;

	if (place->sector || place->volume >> 20 != MD_MAJOR)
		return false;
	if (!from->end_sector || end_sector < from->end_sector)
		from->end_sector = end_sector;
	return end_sector > from->end_sector;
}

/* A volume submits a bio to a device below it, or the kernel passes the bio from a partition on to the drive. */
static __always_inline void on_remap(struct bio *bio, __u32 number, __u64 sector)
{
	const struct volume_place place = { .sector = sector, .volume = number };
	struct issuer *from = bpf_map_lookup_elem(&entered, &place);
	__u64 key = (__u64)bio;
	struct issuer issuer, *noted;

	if (!from)
		from = find_rest(place, bio);
	if (from && !is_parity(bio, &place, from)) {
		issuer = *from;
		note_rest(place, bio, &issuer);
		note_issuer(bio, &issuer);
		return;
	}
	noted = bpf_map_lookup_elem(&issuers, &key);
	if (noted && noted->disk == disk_at(bio) && noted->end_sector == sector + (READ(bio, bi_iter.bi_size) >> 9)) {
		noted->sector = READ(bio, bi_iter.bi_sector);
		noted->end_sector = end_sector_of(bio);
	}
}

/* The file of a bio, 0: none, NO_INODE: unknown. The address of its inode, or what its issuer had for a volume. */
static __always_inline __u64 file_of(struct bio *bio, struct inode *inode)
{
	const struct issuer *issuer;

	if (inode)
		return is_regular(inode) ? (__u64)inode : 0;
	issuer = config.volumes ? noted_issuer(bio) : NULL;
	return issuer && issuer->has_file ? issuer->inode : NO_INODE;
}

/*
 * Whether the bios of a merged request belong to several files. A global function, which takes numbers: the verifier
 * goes through it once, not once for each path that leads to it.
 */
__noinline int has_several_files(__u64 first_bio, __u64 last_bio)
{
	struct bio *bio = (struct bio *)first_bio, *last = (struct bio *)last_bio;
	struct inode *inode, *compared = NULL;
	__u64 file, first = NO_INODE;

	for (int i = 0; i < MAX_COMPARED_BIOS; i++) {
		/* Of more bios than are compared, the last one is the last to be compared. */
		if (!bio || i == MAX_COMPARED_BIOS - 1)
			bio = last;
		inode = inode_of(bio);
		if (!inode || inode != compared) {
			compared = inode;
			file = file_of(bio, inode);
			if (first == NO_INODE)
				first = file;
			if (file != NO_INODE && file != first)
				return true;
		}
		if (bio == last)
			break;
		bio = BPF_CORE_READ(bio, bi_next);
	}
	return false;
}

/* The slot has the file of the bio that the request began with. */
static __always_inline void compare_files(struct slot *slot, struct request *rq)
{
	if (READ(rq, bio) == READ(rq, biotail) || slot->inode == NO_INODE)
		return;
	/* What READ returns may be no number. */
	if (has_several_files((__u64)BPF_CORE_READ(rq, bio), (__u64)BPF_CORE_READ(rq, biotail)))
		slot->flags |= FLAG_SEVERAL_FILES;
}
