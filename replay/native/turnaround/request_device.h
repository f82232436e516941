/* SPDX-License-Identifier: GPL-2.0-or-later */
/* For BPF programs: the drive of a request, on every kernel. */
#pragma once

#include <linux/bpf.h>
#include <linux/version.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

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

/* major << 20 | minor; 0: none. */
static __always_inline __u32 device_of(struct request *rq)
{
	struct gendisk *disk = bpf_core_field_exists(struct request_queue, disk) ?
		BPF_CORE_READ(rq, q, disk) : BPF_CORE_READ((struct request___rq_disk *)rq, rq_disk);

	return disk ? (__u32)BPF_CORE_READ(disk, major) << 20 | (__u32)BPF_CORE_READ(disk, first_minor) : 0;
}

/* Before 5.11 the queue was first. */
static __always_inline struct request *issued_request(const struct bpf_raw_tracepoint_args *args)
{
	return (struct request *)args->args[LINUX_KERNEL_VERSION < KERNEL_VERSION(5, 11, 0)];
}
