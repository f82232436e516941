/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The plan of a lane. A thread reads and checks a bounded number of blocks ahead of the issuing thread, so memory does
 * not grow with the trace.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spsc.h"
#include "run/stop.h"
#include "target/target.h"

#define PLAN_AHEAD_BLOCKS 8u
#define PLAN_MAX_ROWS (1u << 17) /* of one block; bounds the read-ahead */
#define PLAN_PARENTS 4u           /* completions that a row may wait for */
#define PLAN_REACH (1u << 18)     /* the farthest dependency, in rows back */
/*
 * A flag of a row that is not issued: it completes the moment it is due, so that rows that depend on it follow what it
 * waited for. Only in a plan with dependencies; never in a record.
 */
#define PLAN_OMITTED (1 << 30)

/* The fields of a row that go from the plan to the kernel and to the records. */
#define PLAN_ROW_FIELDS                                           \
	int64_t due_ns;                                           \
	int64_t offset_bytes;                                     \
	int64_t length_bytes;                                     \
	int64_t source_row;                                       \
	int64_t captured_ns;         /* submit, from any origin */\
	int64_t captured_latency_ns; /* -1: unknown */            \
	int64_t idle_removed_ns;     /* of the source, before it */ \
	int32_t flags;                                            \
	int32_t tid;                 /* on the source; -1: unknown */ \
	int32_t burst;                                            \
	int16_t stream;                                           \
	int16_t target;                                           \
	int8_t op;

struct plan_row {
	PLAN_ROW_FIELDS
};

/* The columns of a plan in their order: X(type, name, field of plan_block). Each group but the first is optional. */
#define PLAN_BASE_COLUMNS(X)                                                                                            \
	X(int64_t, due_ns, due_ns) X(int64_t, offset_bytes, offset_bytes) X(int64_t, length_bytes, length_bytes)        \
	X(int8_t, op, op) X(int32_t, flags, flags) X(int16_t, stream, stream) X(int32_t, burst, burst)                  \
	X(int64_t, source_row, source_row)
#define PLAN_TARGET_COLUMNS(X) X(int16_t, target, target)
/* after: completions to wait for, behind: a submission, in rows back; 0: none. */
#define PLAN_PARENT_COLUMNS(X)                                                                                          \
	X(int32_t, after_1, after[0]) X(int32_t, after_2, after[1]) X(int32_t, after_3, after[2])                       \
	X(int32_t, after_4, after[3])
/*
 * compute_ns: after that submission, delay_ns: after the last of these. compute_cpu_ns of a shared processor come before
 * the first, delay_cpu_ns after the second.
 */
#define PLAN_DELAY_COLUMNS(X)                                                                                           \
	X(int32_t, behind, behind) X(int64_t, compute_ns, compute_ns) X(int64_t, delay_ns, delay_ns)                    \
	X(int64_t, compute_cpu_ns, compute_cpu_ns) X(int64_t, delay_cpu_ns, delay_cpu_ns)
#define PLAN_CAPTURED_COLUMNS(X)                                                                                        \
	X(int64_t, captured_ns, captured_ns) X(int64_t, captured_latency_ns, captured_latency_ns)                       \
	X(int64_t, idle_removed_ns, idle_removed_ns) X(int32_t, tid, tid)
/* Rows of the lane outstanding at most, with this one; 0: no limit of its own. */
#define PLAN_IN_FLIGHT_COLUMNS(X) X(int32_t, in_flight, in_flight)

#define PLAN_POINTER(type, name, field) const type *field;
struct plan_block {
	uint32_t rows;
	PLAN_BASE_COLUMNS(PLAN_POINTER)
	/* Optional groups; a group is NULL in the entire plan or in no block. */
	PLAN_TARGET_COLUMNS(PLAN_POINTER)
	const int32_t *after[PLAN_PARENTS];
	PLAN_DELAY_COLUMNS(PLAN_POINTER)
	PLAN_CAPTURED_COLUMNS(PLAN_POINTER)
	PLAN_IN_FLIGHT_COLUMNS(PLAN_POINTER)
	void *payload;
	size_t payload_size;
};

struct plan {
	struct spsc ready; /* to the issuing thread */
	struct spsc free;  /* back to the reader */
	struct plan_block blocks[PLAN_AHEAD_BLOCKS];
	const struct target *targets;
	unsigned target_count;
	struct stop *stop;
	/* From the layout, set once plan_wait_loaded has returned. */
	const struct block_layout *layout;
	bool dependent;
	bool captured;
	atomic_bool complete; /* the reader has ended: no block follows those that are ready */
	_Atomic int64_t rows_read;
	_Atomic int64_t longest_write_bytes; /* so far */
	int64_t last_due_ns; /* deadlines are in order in a plan without dependencies */
	char refusal[256]; /* the reason of STOP_PLAN_REFUSED */
	int fd;
	pthread_t thread;
	bool started;
	/* The position of the issuing thread. */
	struct plan_block *current;
	uint32_t next;
};

static inline struct plan_row plan_row_at(const struct plan_block *block, uint32_t i)
{
	return (struct plan_row){
		.due_ns = block->due_ns[i],
		.offset_bytes = block->offset_bytes[i],
		.length_bytes = block->length_bytes[i],
		.source_row = block->source_row[i],
		.captured_ns = block->captured_ns ? block->captured_ns[i] : 0,
		.captured_latency_ns = block->captured_latency_ns ? block->captured_latency_ns[i] : -1,
		.idle_removed_ns = block->idle_removed_ns ? block->idle_removed_ns[i] : 0,
		.flags = block->flags[i],
		.tid = block->tid ? block->tid[i] : -1,
		.burst = block->burst[i],
		.stream = block->stream[i],
		.target = block->target ? block->target[i] : 0,
		.op = block->op[i],
	};
}

/* Starts the reader. Returns 0 or a negative errno. */
int plan_init(struct plan *plan, int fd, const struct target *targets, unsigned target_count, struct stop *stop);

/* Ends the reader, wherever it is in the plan. */
void plan_deinit(struct plan *plan);

/* Waits until the read-ahead is full or the plan is complete. */
void plan_wait_loaded(struct plan *plan);

/* Whether the first row has a deadline. */
bool plan_is_timed(struct plan *plan);

/* Moves to the next block. Returns whether a row is available now. */
bool plan_advance(struct plan *plan);

static inline bool plan_has_row(struct plan *plan)
{
	return (plan->current && plan->next < plan->current->rows) || plan_advance(plan);
}

/* Whether no row is left and none will come. */
bool plan_exhausted(struct plan *plan);

/* Checks every row of a block before any is issued. Returns 0, or a negative errno with plan->refusal set. */
int plan_check(struct plan *plan, const struct plan_block *block);
