// SPDX-License-Identifier: GPL-2.0-or-later
/* Sums the bytes of the writes that the driver of MAJOR:MINOR gets, by their write hint. */
#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

enum __attribute__((packed)) rw_hint {
	WRITE_LIFE_NOT_SET,
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk;
};

struct bio {
	enum rw_hint bi_write_hint;
};

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	struct bio *bio;
};

#pragma clang attribute pop

#define OP_MASK 255
#define OP_WRITE 1

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} bytes SEC(".maps");

SEC("raw_tp/block_rq_issue")
int count_issue(struct bpf_raw_tracepoint_args *context)
{
	struct request *rq = (struct request *)context->args[0];
	struct gendisk *disk = BPF_CORE_READ(rq, q, disk);
	__u32 hint;
	__u64 *sum;

	if (BPF_CORE_READ(disk, major) != MAJOR || BPF_CORE_READ(disk, first_minor) != MINOR ||
	    (BPF_CORE_READ(rq, cmd_flags) & OP_MASK) != OP_WRITE)
		return 0;
	hint = BPF_CORE_READ(rq, bio, bi_write_hint);
	sum = bpf_map_lookup_elem(&bytes, &hint);
	if (sum)
		__sync_fetch_and_add(sum, BPF_CORE_READ(rq, __data_len));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
