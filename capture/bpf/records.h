/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by the BPF programs and the helper: configuration, records, slots and the ledger. */
#pragma once

#include <linux/types.h>

#include "codes.h"

#define MAX_DEVICES 16
#define MAX_DISK_PATHS 32 /* of all multipath heads together */
#define DISK_NAME_WORDS 4
#define COMM_BYTES 16
#define MAX_LOST_INTERVALS 64

/* A command that a program passes to the drive: not part of a trace. */
#define OP_OTHER OP_COUNT

/* Of a request until it is issued: a command that a program passes to the drive. */
#define OP_COMMAND 126

/* In the spool: the row is no I/O, but the first use of the pages of one, or the wake-up of one thread by another. */
#define OP_USE 127
#define OP_WAKE 125

/* How the driver stores a command that a program passes to the drive. */
enum command_set {
	COMMANDS_UNKNOWN,
	COMMANDS_NVME,
	COMMANDS_SCSI,
	COMMANDS_OF_DRIVER, /* virtio: programs pass none, and the driver's own are queries, such as of its serial */
};

/* A range in the slot array: queues x depth slots, then one per queue for its flush request. */
struct slot_range {
	__u32 queues;
	__u32 depth;
	__u32 base;
	__u32 flush_base;
};

struct device_config {
	__u32 number; /* major << 20 | minor of the whole disk */
	__u32 bio_based; /* without requests: its bios are recorded */
	__u32 is_dm;
	__u32 command_set;
	__u32 block_bytes; /* of the addresses in commands */
	struct slot_range range;
};

/* A path of an NVMe multipath head, by its name: user space cannot read the number of a hidden disk. */
struct path_config {
	__u64 name[DISK_NAME_WORDS]; /* padded with zeros */
	__u32 device; /* the head's index in devices */
	struct slot_range range;
};

/* Constant once loaded, so that the verifier removes unreachable code. */
struct capture_config {
	struct device_config devices[MAX_DEVICES];
	__u32 device_count;
	struct path_config paths[MAX_DISK_PATHS];
	__u32 path_count;
	__u8 has_io_start;
	__u8 request_is_second; /* the tracepoints had (queue, request) before 5.11 */
	__u8 bio_is_second;     /* block_bio_queue had (queue, bio) before 5.11 */
	__u8 files;             /* records have inode and cgroup, and paths are emitted */
	__u8 own;               /* marks the workload: by own_pids, or by own_cgroup */
	__u8 own_by_cgroup;
	__u8 sees_limiter;      /* the issuer of a throttled bio is known */
	__u8 sees_faults;       /* the end of each fault that reads the page cache */
	__u8 own_only;          /* other I/O is counted, not recorded */
	__u8 uses;              /* the first use of pages that a read brought is recorded */
	__u8 volumes;           /* bios are followed from volumes and multipath heads to their drives */
	__u32 dm_major;        /* a volume even where it has requests (dm-multipath); 0: dm is not loaded */
	__u32 scsi_command_at; /* in struct scsi_cmnd; 0: unknown */
	__u32 pinned_pages;    /* the flag of bios with pages of a program, of direct I/O (since 6.5); 0: unknown */
	__u64 wakeup_bytes;
	__u64 interval_gap_ns; /* losses closer than this are one interval */
	/* The end functions of bios, which identify the waiting thread and the file. 0: unknown. */
	__u64 end_of_waited_bio;
	__u64 end_of_direct_io;
	__u64 end_of_chained_bio;
};

enum phase {
	PHASE_OFF,
	PHASE_RUNNING,
	PHASE_CLOSING, /* completions are recorded, new I/Os are not */
};

struct capture_control {
	__u32 phase;
};

/* Arguments of one run of the synthetic program. */
struct synthetic_args {
	__u64 first;
	__u32 count;
};

enum record_kind {
	RECORD_IO = 1,
	RECORD_THREAD,
	RECORD_FILE,
	RECORD_USE,
	RECORD_WAKE,
};

/*
 * Flags of records and of rows in the spool, not of traces. Of a read: a use of its pages becomes a record. Of a use: it
 * corrects an earlier one.
 */
#define FLAG_PAGES_NOTED (1u << 30)
#define FLAG_CORRECTS FLAG_PAGES_NOTED

/* Of a thread, until it causes an I/O or uses pages. ~0: unknown. */
struct thread_times {
	__u64 blocked_ns; /* by I/O since its first I/O */
	__u64 slept_ns; /* for anything else, since then */
	__u64 runnable_ns; /* it waited for a processor since it began */
};

#define TIME_UNKNOWN (~0ull)
#define TIMES_UNKNOWN ((struct thread_times){ TIME_UNKNOWN, TIME_UNKNOWN, TIME_UNKNOWN })

struct io_record {
	__u8 kind;
	__u8 op;
	__s16 error; /* of the kernel: a negative errno, or a positive BLK_STS code */
	__s16 device;
	__s16 cpu;
	__u64 start_ns; /* 0: unknown */
	__u64 submit_ns;
	__u64 complete_ns; /* 0: no completion event */
	__u64 sector;
	__u32 length_bytes;
	__u32 flags;
	__s32 tid;
	__u32 pad;
	/* The completion that woke the thread last before entry; 0: unknown. */
	__u64 waited_submit_ns;
	__u64 waited_complete_ns;
	struct thread_times times; /* at entry */
};

struct io_file_record {
	struct io_record io;
	__u64 inode;  /* NO_INODE: unknown; 0: none, the drive itself or a file system's own structures */
	__u64 cgroup; /* 0: unknown */
};

#define NO_INODE (~0ull)

#define PAGE_NOTE_BITS 16
#define PAGE_NOTES (1u << PAGE_NOTE_BITS) /* of chunks of 16 KiB that nobody has used yet: a GiB */

/* A thread used pages of a completed read for the first time. */
struct use_record {
	__u8 kind;
	__u8 corrects; /* the earlier one of the same read, when its pages were mapped before the thread was there */
	__u8 pad[2];
	__s32 tid;
	__u64 submit_ns; /* of the read */
	__u64 used_ns;
	__u64 woken_ns; /* the completion that woke the thread last before the use; 0: unknown */
	struct thread_times times;
};

/* A thread woke another one, which then caused an I/O or used pages. */
struct wake_record {
	__u8 kind;
	__u8 pad[3];
	__s32 tid;
	__s32 woken_tid;
	__u32 pad32;
	__u64 at_ns;
	__u64 woken_ns; /* the completion that woke the first thread last before that; 0: unknown */
	struct thread_times times; /* of the first thread */
};

#define MAX_PATH_PARTS 24
#define MAX_PATH_BYTES 1024 /* a power of two: names begin before it */
#define MAX_NAME_BYTES 256

/*
 * Names from the file up to the root of its file system, each ended by a zero. A longer or deeper path is cut: its
 * first names are missing.
 */
struct file_record {
	__u8 kind;
	__u8 parts;
	__u8 is_cut;
	__u8 pad;
	__u32 filesystem; /* the kernel's dev_t: major << 20 | minor */
	__u64 inode;
	char names[MAX_PATH_BYTES + MAX_NAME_BYTES];
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

/* A process in the PID namespace of the helper. */
struct process_numbers {
	__s32 own;     /* in that namespace */
	__s32 initial; /* in the initial one, as in all events */
};

enum slot_state {
	SLOT_IDLE,
	SLOT_STARTED,
	SLOT_ISSUED,
};

/* One request between entry and completion, in two cache lines of its own: neighbors complete on other CPUs. */
struct slot {
	/* Used by issue and completion. */
	__u64 request;
	__u64 start_ns;
	__u64 submit_ns;
	__u64 sector;
	__u32 length_bytes;
	__u32 remaining_bytes;
	__u32 flags; /* at entry: the flush machinery removes some before issue */
	__s32 tid;
	__s16 cpu;
	__s16 error;
	__u8 state;
	__u8 used; /* had an event since the start */
	__u8 op;
	__u8 ends_twice; /* its data is complete, and a completion without bytes follows */
	__s16 device;
	__u8 skipped; /* not of the workload, and only that is recorded */
	__u8 waited_for; /* its thread waits for it */
	__u8 resubmitted; /* by another thread than the one that issued its bio */
	__u8 pad8[3];
	/* Set at entry. */
	__u64 waited_submit_ns;
	__u64 waited_complete_ns;
	__u64 inode;
	__u64 cgroup;
	__u64 complete_ns; /* of the last request here that was part of a flush; 0: none, or not complete */
	struct thread_times times;
};

struct lost_interval {
	__u64 first_ns;
	__u64 last_ns;
	__u64 count;
};

/* Per CPU: counts of everything that makes a trace incomplete. */
struct cpu_ledger {
	__u64 lost;               /* completed I/Os for which the ring had no space */
	__u64 reused;             /* slots in use when their tag was assigned again: rows without a completion event */
	__u64 unmatched;          /* completions without their issue */
	__u64 in_flight_at_start; /* the same, if the issue was before the capture */
	__u64 unissued;           /* ended before their issue */
	__u64 empty_flushes;      /* flushes without data, each served by a flush request */
	__u64 requeued;
	__u64 merged;
	__u64 other_ops;
	__u64 commands_unseen;    /* passed to the drive, without a place or with an operation that no trace has */
	__u64 out_of_range;       /* a tag or queue beyond those in sysfs */
	__u64 failed_over;        /* requests whose bios moved to another path of a multipath head */
	__u64 uses_lost;          /* first uses of pages for which the ring had no space */
	__u64 uses_mapped;        /* first uses of pages seen when they were mapped, maybe too early */
	__u64 wakes_lost;         /* wake-ups of threads by threads, the same */
	__u64 parts;              /* of I/Os of a volume, which its counters have as I/Os of their own */
	__u64 not_own;            /* completed I/Os outside the workload, if only the workload is recorded */
	/* Processor time of the workload's threads that ended: of all, and the most of one. Many do no I/O. */
	__u64 computed_ns;
	__u64 longest_computed_ns;
	__u64 interval_count;
	struct lost_interval intervals[MAX_LOST_INTERVALS];
};
