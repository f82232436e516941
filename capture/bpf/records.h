/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What crosses between the BPF programs and the helper: configuration, records, slots and the ledger. */
#ifndef BLKREEL_RECORDS_H
#define BLKREEL_RECORDS_H

#include <linux/types.h>

#include "codes.h"

#define MAX_DEVICES 16
#define COMM_BYTES 16
#define MAX_LOST_INTERVALS 64

/* Zone management, passthrough: not part of a trace. */
#define OP_OTHER OP_COUNT

/* A drive's place in the slot array: queues x depth slots, then one per queue for its flush request. */
struct device_config {
	__u32 number; /* major << 20 | minor of the whole disk */
	__u32 queues;
	__u32 depth;
	__u32 slot_base;
	__u32 flush_base;
};

/* Constant once loaded, so that the verifier removes what it rules out. */
struct capture_config {
	struct device_config devices[MAX_DEVICES];
	__u32 device_count;
	__u8 has_io_start;
	__u8 request_is_second; /* the tracepoints had (queue, request) before 5.11 */
	__u64 wakeup_bytes;
	__u64 interval_gap_ns; /* losses closer than this are one interval */
};

enum phase {
	PHASE_OFF,
	PHASE_RUNNING,
	PHASE_CLOSING, /* completions of what was issued are still taken, nothing new is */
};

struct capture_control {
	__u32 phase;
};

enum record_kind {
	RECORD_IO = 1,
	RECORD_THREAD,
};

struct io_record {
	__u8 kind;
	__u8 op;
	__s16 error; /* as the kernel gave it: negative errno, or a positive BLK_STS code */
	__s16 device;
	__s16 cpu;
	__u64 start_ns; /* 0: unknown */
	__u64 submit_ns;
	__u64 complete_ns; /* 0: completion not seen */
	__u64 sector;
	__u32 length_bytes;
	__u32 flags;
	__s32 tid;
	__u32 pad;
};

struct thread_record {
	__u8 kind;
	__u8 pad[3];
	__s32 tid;
	__s32 pid;
	char comm[COMM_BYTES];
	char process[COMM_BYTES]; /* comm of the group leader */
};

enum slot_state {
	SLOT_IDLE,
	SLOT_STARTED,
	SLOT_ISSUED,
};

/* One request between entry and completion. A cache line each: neighbours complete on other processors. */
struct slot {
	__u64 request;
	__u64 start_ns;
	__u64 submit_ns;
	__u64 sector;
	__u32 length_bytes;
	__u32 remaining_bytes;
	__u32 flags; /* as they were at entry: the flush machinery strips some before issue */
	__s32 tid;
	__s16 cpu;
	__s16 error;
	__u8 state;
	__u8 used; /* something was seen here since the start */
	__u8 op;
	__u8 ends_twice; /* its data is done, and a completion without bytes will follow */
	__s16 device;
	__u16 pad16;
	__u32 pad32;
};

struct lost_interval {
	__u64 first_ns;
	__u64 last_ns;
	__u64 count;
};

/* Per CPU. Everything that would make a trace incomplete is counted here. */
struct cpu_ledger {
	__u64 lost;               /* completed I/Os for which the ring had no space */
	__u64 reused;             /* slots still occupied when their tag came again: a completion was not seen */
	__u64 unmatched;          /* completions without their issue */
	__u64 in_flight_at_start; /* the same, where the issue was before the capture */
	__u64 unissued;           /* ended before they reached the drive */
	__u64 empty_flushes;      /* flushes without data, each fulfilled by a flush request of its own */
	__u64 requeued;
	__u64 merged;
	__u64 other_ops;
	__u64 out_of_range;       /* a tag or queue that sysfs did not announce */
	__u64 interval_count;
	struct lost_interval intervals[MAX_LOST_INTERVALS];
};

#endif
