/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <linux/bpf.h>
#include <linux/version.h>
#include <stdbool.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "codes.h"
#include "issue_times.h"

#define SECTOR_BYTES 512
/* Of the kernel's cmd_flags. */
#define OP_MASK 0xffu

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
	unsigned int cmd_flags;
	unsigned int __data_len;
	__u64 __sector;
};

struct request___rq_disk {
	struct gendisk *rq_disk; /* to 5.16 */
};
#pragma clang attribute pop

extern int LINUX_KERNEL_VERSION __kconfig;

/* Some hundred I/Os more than a device has in flight; the server takes them with each request. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 17);
} noted SEC(".maps");

/* major << 20 | minor, of user space; 0: no device yet. */
__u32 device;

static __always_inline __u32 device_of(struct request *rq)
{
	struct gendisk *disk = bpf_core_field_exists(struct request_queue, disk) ?
		BPF_CORE_READ(rq, q, disk) : BPF_CORE_READ((struct request___rq_disk *)rq, rq_disk);

	return disk ? (__u32)BPF_CORE_READ(disk, major) << 20 | (__u32)BPF_CORE_READ(disk, first_minor) : 0;
}

static __always_inline void note(struct request *rq, bool is_complete)
{
	struct noted *io;
	unsigned int op; /* the kernel's read, write and flush are 0, 1 and 2, as in enum trace_op */

	if (!device || device_of(rq) != device)
		return;
	op = BPF_CORE_READ(rq, cmd_flags) & OP_MASK;
	if (op > OP_FLUSH)
		return;
	io = bpf_ringbuf_reserve(&noted, sizeof(*io), 0);
	if (!io)
		return;
	io->at_ns = bpf_ktime_get_ns();
	io->offset_bytes = op == OP_FLUSH ? 0 : BPF_CORE_READ(rq, __sector) * SECTOR_BYTES;
	io->length_bytes = BPF_CORE_READ(rq, __data_len);
	io->op = op;
	io->is_complete = is_complete;
	bpf_ringbuf_submit(io, BPF_RB_NO_WAKEUP);
}

SEC("raw_tp/block_rq_issue")
int note_issue(struct bpf_raw_tracepoint_args *args)
{
	/* Before 5.11 the queue was first. */
	note((struct request *)args->args[LINUX_KERNEL_VERSION < KERNEL_VERSION(5, 11, 0)], false);
	return 0;
}

SEC("raw_tp/block_rq_complete")
int note_completion(struct bpf_raw_tracepoint_args *args)
{
	note((struct request *)args->args[0], true);
	return 0;
}
