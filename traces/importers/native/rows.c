/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "rows.h"

#include <errno.h>
#include <stdlib.h>

#define RESERVE_DIVISOR 4 /* these sources record less of each I/O than the capture helper */

static const struct block_column columns[] = { TRACE_COLUMNS(BLOCK_COLUMN) };
#define COLUMN_COUNT (sizeof(columns) / sizeof(columns[0]))

static const struct block_layout layout = {
	.stream = "capture",
	.columns = columns,
	.column_count = COLUMN_COUNT,
};

struct row_buffer {
	uint32_t rows;
#define ARRAY(type, name) type name[ROWS_PER_BLOCK];
	TRACE_COLUMNS(ARRAY)
#undef ARRAY
};

int rows_init(struct rows *rows, int fd, int reserve_fd)
{
	*rows = (struct rows){ .buffer = calloc(1, sizeof(*rows->buffer)) };
	spool_file_init(&rows->file, fd, reserve_fd, RESERVE_DIVISOR);
	return rows->buffer ? spool_file_write_layout(&rows->file, &layout) : -ENOMEM;
}

void rows_deinit(struct rows *rows)
{
	free(rows->buffer);
	rows->buffer = NULL;
}

static void uncount(struct rows *rows)
{
	const struct row_buffer *buffer = rows->buffer;

	for (uint32_t i = 0; i < buffer->rows; i++) {
		rows->ios[buffer->op[i]]--;
		rows->bytes[buffer->op[i]] -= (uint64_t)buffer->length_bytes[i];
	}
	rows->count -= buffer->rows;
	rows->unwritten += buffer->rows;
}

int rows_flush(struct rows *rows)
{
	const struct row_buffer *block = rows->buffer;
	const void *const pointers[COLUMN_COUNT] = { TRACE_COLUMNS(BLOCK_POINTER) };

	if (!block->rows)
		return rows->error;
	if (!rows->error) {
		rows->error = spool_file_write_rows(&rows->file, &layout, block->rows, pointers);
		if (rows->error)
			spool_file_release_reserve(&rows->file);
	}
	if (rows->error)
		uncount(rows);
	rows->buffer->rows = 0;
	return rows->error;
}

void rows_add(struct rows *rows, const struct trace_row *row)
{
	struct row_buffer *buffer = rows->buffer;
	uint32_t at = buffer->rows++;

	buffer->submit_ns[at] = (int64_t)(row->submit_ns - rows->epoch_ns);
	buffer->latency_ns[at] = row->complete_ns != TIME_UNSEEN && row->complete_ns >= row->submit_ns ?
				 (int64_t)(row->complete_ns - row->submit_ns) : -1;
	buffer->queue_ns[at] = row->queued_ns <= row->submit_ns ? (int64_t)(row->submit_ns - row->queued_ns) : -1;
	buffer->offset_bytes[at] = (int64_t)(row->sector * SECTOR_BYTES);
	buffer->length_bytes[at] = row->length_bytes;
	buffer->flags[at] = (int32_t)row->flags;
	buffer->tid[at] = row->tid;
	buffer->device[at] = row->device;
	buffer->cpu[at] = row->cpu;
	buffer->status[at] = row->status;
	buffer->op[at] = row->op;
	rows->ios[row->op]++;
	rows->bytes[row->op] += row->length_bytes;
	rows->count++;
	if (buffer->rows == ROWS_PER_BLOCK)
		rows_flush(rows);
}
