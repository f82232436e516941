/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Records as columns of the trace, in blocks that circulate between the drain and the writer. */
#pragma once

#include "records.h"
#include "trace_rows.h"

#include <stdbool.h>
#include <stdint.h>

/* waited_on: submit_ns of the I/O waited for; row numbers are assigned when the trace is sorted. */
#define CAPTURE_COLUMNS(X) \
	TRACE_COLUMNS(X) X(int64_t, waited_on) X(int64_t, think_ns) X(int64_t, blocked_ns) X(int64_t, slept_ns) \
	X(int64_t, runnable_ns) X(int64_t, inode) X(int64_t, cgroup)
#define ROW_COLUMNS 18 /* without files the last two are left out */

/* An entry of the outbox's queue. The first member of a row block, so that the drain allocates nothing. */
struct message {
	struct message *next;
	enum block_kind kind;
	char *json; /* of all kinds but BLOCK_ROWS */
};

struct row_block {
	struct message message;
	uint64_t posted_ns; /* row_posted_ns() of then: what had completed is in this block or an earlier one */
	uint32_t rows;
#define ARRAY(type, name) type name[ROWS_PER_BLOCK];
	CAPTURE_COLUMNS(ARRAY)
#undef ARRAY
};

extern struct block_layout row_layout;

/* With files, rows have the columns inode and cgroup. To be set before the first block. */
void rows_set_files(bool files);

/* Time since the start; 0 before it, when no epoch is set yet or one that is later. */
static inline uint64_t row_posted_ns(uint64_t now_ns, uint64_t epoch_ns)
{
	return epoch_ns && now_ns > epoch_ns ? now_ns - epoch_ns : 0;
}

/* Adds one row, with times relative to epoch_ns. The block must have room. `file` may be NULL. */
void row_append(struct row_block *block, const struct io_record *record, const struct io_file_record *file,
		uint64_t epoch_ns);

/*
 * Adds a row that is no I/O: its operation is OP_USE, its submit_ns that of the read that was used, its latency the
 * time from there to the use. traces/spool/causes.py joins it with the read.
 */
void row_append_use(struct row_block *block, const struct use_record *use, uint64_t epoch_ns);

/*
 * The same for a wake-up: its operation is OP_WAKE, its submit_ns the time, its tid the thread that woke another one, and
 * its length the thread that was woken. traces/spool/causes.py joins it with the next I/O of that thread.
 */
void row_append_wake(struct row_block *block, const struct wake_record *wake, uint64_t epoch_ns);

/* The columns of a block, as block_write_rows takes them. */
void row_columns(const struct row_block *block, const void *columns[ROW_COLUMNS]);

/* The negative errno of a completion event's status: an errno itself, or since 5.17 a BLK_STS code. */
int16_t status_errno(int16_t error);
