/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the I/O goes to: a block device, a regular file, or nothing at all. */
#ifndef BLKREEL_TARGET_H
#define BLKREEL_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "codes.h"

/* What becomes of one row on this target. */
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
	ALTERED_PRIORITY,
	DROPPED,
	FIDELITY_COUNT,
};

extern const char *const op_names[OP_COUNT];
extern const char *const fidelity_names[FIDELITY_COUNT];

/* A read or write that is longer goes to the kernel in pieces: buffers of this size are ready before the first deadline. */
#define PIECE_MAX_BYTES (4ll << 20)

/* So much of one long row is with the kernel at a time: more than any drive works on, and a part of the payload's pool. */
#define ROW_WINDOW_BYTES (8ll << 20)

/* Of one run. */
#define MAX_TARGETS 16

struct target {
	const char *path;
	int fd; /* -1 for the null target */
	bool block_device;
	bool may_write;
	bool direct;
	bool bio_based; /* it takes I/O without a queue of requests */
	bool realtime_priority; /* this process may ask for the real-time I/O class */
	uint64_t device;         /* dev_t of a block device */
	int64_t size_bytes;
	int64_t logical_block_bytes;
	bool fua;         /* the drive writes through its cache where told to; the kernel flushes where it has none */
	bool write_cache; /* a volatile one; without, the kernel answers flushes itself and leaves out FUA */
	/* Of a block device's queue; 0 where the drive has no such command. */
	int64_t discard_max_bytes;
	int64_t write_zeroes_max_bytes;
	int64_t max_io_bytes; /* the kernel splits what is longer; 0: unknown */
	int64_t queue_requests; /* that its queue takes without delay; 0: no such limit, or unknown */
};

struct target_options {
	const char *path; /* NULL: the null target */
	int64_t null_size_bytes;
	bool may_write;
	bool direct;
	bool exclusive;
	bool polled; /* it must have queues whose completions can be polled */
};

/* Opens it read-only unless may_write. Returns 0 or an exit code, having said why on stderr. */
int target_open(struct target *target, const struct target_options *options);

/* I/Os that the kernel has merged into others on the way to this drive, since it is there. */
int64_t target_merges(const struct target *target);

/*
 * Whether the drive turned out not to have the write-zeroes command: the kernel
 * learns that from the first one, clears the limit, and writes zeros instead.
 */
bool target_lost_write_zeroes(const struct target *target);

/* Whether the kernel or we make more than one request of such a row. */
bool target_splits(const struct target *target, enum trace_op op, int64_t length_bytes);

/* How long the pieces of a long read or write are: whole requests of the kernel's, so that the drive sees the same ones. */
int64_t target_piece_bytes(const struct target *target);

static inline int64_t row_at_once_bytes(int64_t length_bytes)
{
	return length_bytes < ROW_WINDOW_BYTES ? length_bytes : ROW_WINDOW_BYTES;
}

enum fidelity target_fidelity(const struct target *target, enum trace_op op, int32_t flags);

#endif
