/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A target of the I/O: a block device, a regular file, or the nil target. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "codes.h"
#include "compares.h"

/* How a target executes a row. */
enum fidelity {
	AS_PLANNED,
	ALTERED_FUA,
	ALTERED_FUA_BY_FLUSH,
	ALTERED_FUA_WITHOUT_CACHE,
	ALTERED_PREFLUSH,
	ALTERED_PREFLUSH_WITHOUT_CACHE,
	ALTERED_FLUSH,
	ALTERED_FLUSH_WITHOUT_CACHE,
	ALTERED_DISCARD,
	ALTERED_WRITE_ZEROES,
	ALTERED_ZONE_APPEND,
	ALTERED_PRIORITY,
	ALTERED_WRITE_HINT,
	ALTERED_ATOMIC,
	DROPPED,
	FIDELITY_COUNT,
};

extern const char *const op_names[OP_COUNT];
extern const char *const fidelity_names[FIDELITY_COUNT];

/* A longer read or write is submitted in pieces. */
#define PIECE_MAX_BYTES (4ll << 20)

/* Bytes of one long row that are submitted at a time: more than a drive processes, less than the payload's pool. */
#define ROW_WINDOW_BYTES (8ll << 20)

#define MAX_TARGETS 16

/* What the caller has found out about a block device. */
struct write_support {
	int64_t atomic_min_bytes, atomic_max_bytes; /* 0: no atomic writes */
	int64_t verify_max_bytes; /* of a command; 0: the drive does not have it */
	bool hinted;
	int hint_fds[HINT_COUNT]; /* inherited, if hinted: nodes of the device, each with its hint */
};

struct target {
	const char *path;
	int fd; /* -1 for the nil target */
	int exclusive_fd; /* inherited: the claim on the target. -1: none */
	int command_fd; /* the character device of the NVMe namespace, which takes commands. Not above 0: I/O goes to `fd` */
	uint32_t namespace;
	/* Of a block device, in sysfs, which a confined thread cannot open. -1: none. */
	int statistics_fd, write_zeroes_fd;
	bool block_device;
	bool may_write;
	bool bio_based;         /* no request queue */
	bool realtime_priority; /* this process may use the real-time I/O class */
	int64_t size_bytes;
	int64_t logical_block_bytes;
	bool fua;         /* supported; otherwise the kernel flushes after the write */
	bool write_cache; /* volatile; without one the kernel completes flushes itself and drops FUA */
	/* Limits of the block device's queue; 0: the drive does not have the command. */
	int64_t discard_max_bytes;
	int64_t write_zeroes_max_bytes;
	int64_t zone_bytes;   /* of each zone; 0: no zones */
	int64_t max_io_bytes; /* the kernel splits longer ones; 0: unknown */
	int64_t queue_requests; /* that the queue takes without delay; 0: no limit, or unknown */
	struct write_support write_support;
	struct compares compares;
};

/* A target that the caller has checked and claimed, in an inherited descriptor; see Identity in target.py. */
struct claimed {
	int fd;
	int exclusive_fd; /* of the whole drive, with the claim; may be fd */
	uint64_t device, inode; /* of a file */
	uint64_t node, diskseq; /* of a block device; diskseq 0: not supported by the kernel */
};

struct target_options {
	const char *path; /* NULL: the nil target */
	/* Its descriptor stays open and claims the target until this process ends, even if the caller is killed. */
	const struct claimed *claimed;
	struct write_support write_support;
	int compares_fd; /* inherited: the data of its compares. 0: none */
	int64_t nil_size_bytes;
	bool may_write;
	bool polled; /* requires queues with polled completions */
	bool passthrough; /* requires a whole NVMe namespace, which gets commands instead of I/Os of the block layer */
};

/* Opens it read-only unless may_write. Returns 0, or an exit code after an error message. */
int target_open(struct target *target, const struct target_options *options);
void target_close(struct target *target);

/* I/Os that the kernel has merged since the drive was added. */
int64_t target_merges(const struct target *target);

/* Whether the kernel found that the drive lacks write-zeroes: it then clears the limit and writes zeros instead. */
bool target_lost_write_zeroes(const struct target *target);

/* The number of requests that such a row occupies at a time. */
int64_t target_requests(const struct target *target, enum trace_op op, int64_t length_bytes);

static inline bool target_takes_commands(const struct target *target)
{
	return target->command_fd > 0;
}

/* The length of pieces of a long row: a multiple of the kernel's requests, so that the drive gets the same ones. */
int64_t target_piece_bytes(const struct target *target);

/* The buffer of a write until it completes: its data, or a window of pieces. */
static inline int64_t row_buffer_bytes(int64_t length_bytes)
{
	return length_bytes > PIECE_MAX_BYTES ? ROW_WINDOW_BYTES : length_bytes;
}

/* The index of the hint in the flags of a row; -1: none. */
static inline int hint_index(int32_t flags)
{
	return flags & FLAG_HINTS ? __builtin_ctz(flags & FLAG_HINTS) - __builtin_ctz(FLAG_HINT_NONE) : -1;
}

/* The flags of a row, without a hint and an atomicity that the target does not support. */
int32_t target_write_flags(const struct target *target, enum trace_op op, int32_t flags, int64_t offset_bytes,
			   int64_t length_bytes);

enum fidelity target_fidelity(const struct target *target, enum trace_op op, int32_t flags);
