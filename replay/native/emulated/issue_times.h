/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * When the kernel issued each I/O to the device of an emulated drive: noted by a BPF program, in memory that the server
 * shares. A request reaches the server later, after a wake-up from idle and behind those before it, and the drive is to
 * count from its issue. Without BPF, an I/O counts from its arrival.
 */
#ifndef BLKREEL_EMULATED_ISSUE_TIMES_H
#define BLKREEL_EMULATED_ISSUE_TIMES_H

#include <linux/types.h>

#define ISSUE_SLOT_BITS 12

/* Of one I/O; another one may replace it. */
struct issue_slot {
	__u64 sector_after; /* the sector it begins at + 1; 0: taken */
	__u64 issued_ns;    /* on CLOCK_MONOTONIC */
};

static inline __u32 issue_slot_of(__u64 sector)
{
	return (__u32)(sector * 0x9E3779B97F4A7C15ull >> (64 - ISSUE_SLOT_BITS));
}

#ifndef __bpf__
#include <stdint.h>

struct issue_times {
	struct issue_slot *slots; /* NULL: not known */
	struct issue_times_bpf *programs;
};

/* Where the kernel can note them, it does so for the device of issue_times_of(). */
void issue_times_begin(struct issue_times *times);
void issue_times_of(struct issue_times *times, const char *node);
void issue_times_end(struct issue_times *times);

/* When the I/O at this offset was issued that arrived now; `arrived_ns` if it is not known. */
int64_t issue_time(const struct issue_times *times, int64_t offset_bytes, int64_t arrived_ns);
#endif

#endif
