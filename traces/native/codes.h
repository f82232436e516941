/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The codes of a trace's columns `op` and `flags` and the limit of times, for C and BPF.
 * traces/format/schema.py has the same for Python; a test compares them.
 */
#pragma once

#include <stdbool.h>

/* No I/O completes at this time (73 years) or later, and no time is as long. */
#define TIME_LIMIT_NS (1ll << 61)

enum trace_op {
	OP_READ = 0,
	OP_WRITE = 1,
	OP_FLUSH = 2,
	OP_DISCARD = 3,
	OP_WRITE_ZEROES = 4,
	OP_ZONE_APPEND = 5,
	OP_ZONE_RESET = 6,
	OP_ZONE_RESET_ALL = 7,
	OP_ZONE_OPEN = 8,
	OP_ZONE_CLOSE = 9,
	OP_ZONE_FINISH = 10,
	OP_VERIFY = 11,
	OP_COMPARE = 12,
	OP_COUNT = 13,
};

/* An append is a write whose offset the drive chooses. */
static inline bool op_is_write(int op)
{
	return op == OP_WRITE || op == OP_ZONE_APPEND;
}

/* Changes the state of a zone, or of all: the offset is its start, the length 0. */
static inline bool op_is_zone_management(int op)
{
	return op >= OP_ZONE_RESET && op <= OP_ZONE_FINISH;
}

/* The drive reads a range and the program gets no data: commands, which the block layer does not have. */
static inline bool op_is_check(int op)
{
	return op == OP_VERIFY || op == OP_COMPARE;
}

static inline bool op_changes_data(int op)
{
	return op != OP_READ && op != OP_FLUSH && !op_is_check(op);
}

enum trace_flag {
	FLAG_SYNC = 1 << 0,
	FLAG_METADATA = 1 << 1,
	FLAG_READ_AHEAD = 1 << 2,
	FLAG_FUA = 1 << 3,
	FLAG_PREFLUSH = 1 << 4,
	FLAG_BACKGROUND = 1 << 5,
	FLAG_IDLE = 1 << 6,
	FLAG_MAY_UNMAP = 1 << 7, /* of write zeroes */
	FLAG_PRIORITY_REALTIME = 1 << 8,
	FLAG_PRIORITY_BEST_EFFORT = 1 << 9,
	FLAG_PRIORITY_IDLE = 1 << 10,
	FLAG_OWN = 1 << 11,
	FLAG_DEFERRED = 1 << 12,
	FLAG_INHERITED = 1 << 13,
	FLAG_ROLE_BACKGROUND = 1 << 14,
	FLAG_SEVERAL_FILES = 1 << 15,
	/* Of a run. */
	FLAG_QUEUE_FULL = 1 << 16,
	FLAG_HAZARD = 1 << 17,
	FLAG_ANCHORED = 1 << 18,
	FLAG_HOST_STALLED = 1 << 19,
	/* Of a trace again. */
	FLAG_ATOMIC = 1 << 23,
	FLAG_PASSTHROUGH = 1 << 24,
	FLAG_HINT_NONE = 1 << 25, /* RWH_WRITE_LIFE_NONE; the others follow in the order of the kernel */
	FLAG_HINT_SHORT = 1 << 26,
	FLAG_HINT_MEDIUM = 1 << 27,
	FLAG_HINT_LONG = 1 << 28,
	FLAG_HINT_EXTREME = 1 << 29,
};

#define HINT_COUNT 5
#define FLAG_HINTS (FLAG_HINT_NONE | FLAG_HINT_SHORT | FLAG_HINT_MEDIUM | FLAG_HINT_LONG | FLAG_HINT_EXTREME)
