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
	__u32 bio_based; /* no requests, hence no tags: its bios are recorded */
};

/* Constant once loaded, so that the verifier removes what it rules out. */
struct capture_config {
	struct device_config devices[MAX_DEVICES];
	__u32 device_count;
	__u8 has_io_start;
	__u8 request_is_second; /* the tracepoints had (queue, request) before 5.11 */
	__u8 bio_is_second;     /* block_bio_queue had (queue, bio) before 5.11 */
	__u8 files;             /* records carry inode and cgroup, and paths are told */
	__u8 own;               /* who is "own" is decided: by own_pids, or by own_cgroup */
	__u8 own_by_cgroup;
	__u8 own_only;          /* what is not own is counted, not recorded */
	__u64 wakeup_bytes;
	__u64 interval_gap_ns; /* losses closer than this are one interval */
	/* What bios point to when they end: it tells who waits, and for which file. 0: unknown here. */
	__u64 end_of_waited_bio;
	__u64 end_of_direct_io;
	__u64 end_of_chained_bio;
};

enum phase {
	PHASE_OFF,
	PHASE_RUNNING,
	PHASE_CLOSING, /* completions of what was issued are still taken, nothing new is */
};

struct capture_control {
	__u32 phase;
};

/* What one run of the synthetic program emits. */
struct synthetic_args {
	__u64 first;
	__u32 count;
};

enum record_kind {
	RECORD_IO = 1,
	RECORD_THREAD,
	RECORD_FILE,
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
	/* The completion that woke the thread last before it entered; 0: none known. */
	__u64 waited_submit_ns;
	__u64 waited_complete_ns;
};

struct io_file_record {
	struct io_record io;
	__u64 inode;  /* NO_INODE: unknown; 0: none, the drive itself or a file system's own structures */
	__u64 cgroup; /* 0: unknown */
};

#define NO_INODE (~0ull)

#define MAX_PATH_PARTS 24
#define MAX_PATH_BYTES 1024
#define MAX_NAME_BYTES 256

/* Names from the file up to the root of its file system, each ended by a zero. */
struct file_record {
	__u8 kind;
	__u8 parts;
	__u16 bytes;
	__u32 filesystem; /* the kernel's dev_t: major << 20 | minor */
	__u64 inode;
	char names[MAX_PATH_BYTES];
};

struct thread_record {
	__u8 kind;
	__u8 pad[3];
	__s32 tid;
	__s32 pid;
	__u32 pad32;
	__u64 cgroup; /* of the unified hierarchy; 0: unknown */
	char comm[COMM_BYTES];
	char process[COMM_BYTES]; /* comm of the group leader */
};

enum slot_state {
	SLOT_IDLE,
	SLOT_STARTED,
	SLOT_ISSUED,
};

/* One request between entry and completion: two cache lines of its own, since neighbours complete on other processors. */
struct slot {
	/* What issue and completion touch. */
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
	__u8 skipped; /* not own, and only own I/O is wanted */
	__u8 waited_for; /* its thread stands still until it completes */
	__u32 pad32;
	/* What is known at entry. */
	__u64 waited_submit_ns;
	__u64 waited_complete_ns;
	__u64 inode;
	__u64 cgroup;
	__u64 complete_ns; /* of the last one here that took part in a flush; 0: none, or it still stands here */
	__u64 pad[3];
};

struct lost_interval {
	__u64 first_ns;
	__u64 last_ns;
	__u64 count;
};

/* Per CPU. Everything that would make a trace incomplete is counted here. */
struct cpu_ledger {
	__u64 lost;               /* completed I/Os for which the ring had no space */
	__u64 reused;             /* rows of slots still occupied when their tag came again: a completion was not seen */
	__u64 unmatched;          /* completions without their issue */
	__u64 in_flight_at_start; /* the same, where the issue was before the capture */
	__u64 unissued;           /* ended before they reached the drive */
	__u64 empty_flushes;      /* flushes without data, each fulfilled by a flush request of its own */
	__u64 requeued;
	__u64 merged;
	__u64 other_ops;
	__u64 out_of_range;       /* a tag or queue that sysfs did not announce */
	__u64 not_own;            /* completed I/Os of others, left out because only own ones were wanted */
	__u64 interval_count;
	struct lost_interval intervals[MAX_LOST_INTERVALS];
};

#endif
