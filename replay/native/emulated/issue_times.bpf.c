/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <linux/bpf.h>
#include <linux/version.h>
#include <stdbool.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "issue_times.h"

char LICENSE[] SEC("license") = "GPL";

/* The fields that are read; the loader finds each by name in the running kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk; /* since 5.17 */
};

struct request {
	struct request_queue *q;
	__u64 __sector;
};

struct request___rq_disk {
	struct gendisk *rq_disk; /* to 5.16 */
};
#pragma clang attribute pop

extern int LINUX_KERNEL_VERSION __kconfig;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << ISSUE_SLOT_BITS);
	__type(key, __u32);
	__type(value, struct issue_slot);
} slots SEC(".maps");

/* major << 20 | minor, of user space; 0: no device yet. */
__u32 device;

static __always_inline __u32 device_of(struct request *rq)
{
	struct gendisk *disk = bpf_core_field_exists(struct request_queue, disk) ?
		BPF_CORE_READ(rq, q, disk) : BPF_CORE_READ((struct request___rq_disk *)rq, rq_disk);

	return disk ? (__u32)BPF_CORE_READ(disk, major) << 20 | (__u32)BPF_CORE_READ(disk, first_minor) : 0;
}

SEC("raw_tp/block_rq_issue")
int note_issue(struct bpf_raw_tracepoint_args *args)
{
	/* Before 5.11 the queue was first. */
	struct request *rq = (struct request *)args->args[LINUX_KERNEL_VERSION < KERNEL_VERSION(5, 11, 0)];
	struct issue_slot *slot;
	__u64 sector;
	__u32 index;

	if (!device || device_of(rq) != device)
		return 0;
	sector = BPF_CORE_READ(rq, __sector);
	index = issue_slot_of(sector);
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot)
		return 0;
	slot->issued_ns = bpf_ktime_get_ns();
	/* Behind the time, for the server, which reads the sector first. */
	__sync_lock_test_and_set(&slot->sector_after, sector + 1);
	return 0;
}
