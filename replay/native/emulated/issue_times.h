/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The reads, writes and flushes that the kernel issued to the device of an emulated drive, and their completions, in their
 * order: noted by BPF programs. A request reaches the server later, after a wake-up from idle and behind those before it, and
 * small ones before large ones. The drive is to count from its issue, and in the order of issue. A completion shows how
 * much later than its reply it came. Without BPF, an I/O counts from its arrival.
 */
#pragma once

#include <linux/types.h>

struct noted {
	__u64 at_ns; /* on CLOCK_MONOTONIC */
	__u64 offset_bytes; /* 0 of a flush */
	__u32 length_bytes;
	__u16 op; /* enum trace_op */
	__u16 is_complete; /* else issued */
};

#ifndef __bpf__
struct delay;
struct ring_buffer;

struct issue_times {
	struct ring_buffer *ring; /* NULL: not known */
	struct issue_times_bpf *programs;
};

/* Where the kernel can note them, it does so for the device of issue_times_of(). They are taken by delay_noted(). */
void issue_times_begin(struct issue_times *times, struct delay *delay);
void issue_times_of(struct issue_times *times, const char *node);
void issue_times_end(struct issue_times *times);
#endif
