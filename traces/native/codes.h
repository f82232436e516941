/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The codes of a trace's columns `op` and `flags`, for C and BPF.
 * traces/format/schema.py has the same for Python; a test compares them.
 */
#ifndef BLKREEL_CODES_H
#define BLKREEL_CODES_H

enum trace_op {
	OP_READ = 0,
	OP_WRITE = 1,
	OP_FLUSH = 2,
	OP_DISCARD = 3,
	OP_WRITE_ZEROES = 4,
	OP_COUNT = 5,
};

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
	FLAG_PASSTHROUGH = 1 << 24,
};

#endif
