/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Records as columns of the trace, in blocks that go round between the drain and the writer. */
#ifndef BLKREEL_ROWS_H
#define BLKREEL_ROWS_H

#include "blocks.h"
#include "records.h"

#include <stdbool.h>
#include <stdint.h>

#define ROWS_PER_BLOCK 16384
#define ROW_COLUMNS 15 /* without files the last two are left out */

/* Columns in the order of row_layout. */
struct row_block {
	uint32_t rows;
	uint64_t posted_ns; /* what had completed by then is in this block or before it; since the start */
	struct row_block *next;
	int64_t submit_ns[ROWS_PER_BLOCK];
	int64_t latency_ns[ROWS_PER_BLOCK];
	int64_t queue_ns[ROWS_PER_BLOCK];
	int64_t offset_bytes[ROWS_PER_BLOCK];
	int64_t length_bytes[ROWS_PER_BLOCK];
	int32_t flags[ROWS_PER_BLOCK];
	int32_t tid[ROWS_PER_BLOCK];
	int16_t device[ROWS_PER_BLOCK];
	int16_t cpu[ROWS_PER_BLOCK];
	int16_t status[ROWS_PER_BLOCK];
	int8_t op[ROWS_PER_BLOCK];
	int64_t waited_on[ROWS_PER_BLOCK]; /* submit_ns of the I/O waited for; numbers of rows are known at the end only */
	int64_t think_ns[ROWS_PER_BLOCK];
	int64_t inode[ROWS_PER_BLOCK];
	int64_t cgroup[ROWS_PER_BLOCK];
};

extern struct block_layout row_layout;

/* With files, rows have the columns inode and cgroup. Decided once, before the first block. */
void rows_have_files(bool files);

/* Adds one row; times become relative to epoch_ns. The block must have room. `file` may be NULL. */
void row_append(struct row_block *block, const struct io_record *record, const struct io_file_record *file,
		uint64_t epoch_ns);

/* Points at the columns of a block as block_write_rows wants them. */
void row_columns(const struct row_block *block, const void *columns[ROW_COLUMNS]);

/* The negative errno of what a completion event carries: an errno itself, or since 5.17 a BLK_STS code. */
int16_t status_errno(int16_t error);

#endif
