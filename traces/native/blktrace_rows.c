/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "blktrace_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS_PER_BLOCK 16384
#define RESERVE_SHARE 4
#define RESERVE_STEP_BYTES (64ull << 10)
#define SECTOR_BYTES 512 /* of the kernel, whatever the drive's block size */

static const struct block_column columns[] = {
	{ "submit_ns", 8 }, { "latency_ns", 8 }, { "queue_ns", 8 }, { "offset_bytes", 8 }, { "length_bytes", 8 },
	{ "flags", 4 }, { "tid", 4 }, { "device", 2 }, { "cpu", 2 }, { "status", 2 }, { "op", 1 },
};
#define COLUMN_COUNT (sizeof(columns) / sizeof(columns[0]))

static const struct block_layout layout = {
	.stream = "capture",
	.columns = columns,
	.column_count = COLUMN_COUNT,
};

struct row_buffer {
	uint32_t rows;
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
};

int rows_open(struct rows *rows, int fd, int reserve_fd)
{
	off_t at = lseek(fd, 0, SEEK_CUR);
	int err;

	*rows = (struct rows){ .fd = fd, .reserve_fd = reserve_fd, .whole_bytes = at < 0 ? 0 : at };
	rows->buffer = calloc(1, sizeof(*rows->buffer));
	if (!rows->buffer)
		return -ENOMEM;
	err = block_write_layout(fd, &layout);
	at = lseek(fd, 0, SEEK_CUR);
	rows->whole_bytes = at < 0 ? 0 : at;
	return err;
}

void rows_close(struct rows *rows)
{
	free(rows->buffer);
	rows->buffer = NULL;
}

static int keep_reserve(struct rows *rows)
{
	uint64_t wanted = rows->whole_bytes / RESERVE_SHARE;

	if (rows->reserve_fd < 0 || wanted < rows->reserved_bytes)
		return 0;
	wanted = (wanted / RESERVE_STEP_BYTES + 1 + wanted / RESERVE_STEP_BYTES / 8) * RESERVE_STEP_BYTES;
	if (fallocate(rows->reserve_fd, 0, 0, wanted)) {
		if (errno == ENOSPC || errno == EDQUOT)
			return -errno;
		rows->reserve_fd = -1; /* this file system keeps nothing free */
		return 0;
	}
	rows->reserved_bytes = wanted;
	return 0;
}

/* What is left of a block that was cut would hide all that is written behind it. */
static void cut_back(struct rows *rows)
{
	if (!ftruncate(rows->fd, rows->whole_bytes))
		lseek(rows->fd, rows->whole_bytes, SEEK_SET);
	/* Room for what is still to be said: names of what was written before, and the end block. */
	if (rows->reserved_bytes > RESERVE_STEP_BYTES &&
	    !ftruncate(rows->reserve_fd, rows->reserved_bytes - RESERVE_STEP_BYTES))
		rows->reserved_bytes -= RESERVE_STEP_BYTES;
}

static void uncount(struct rows *rows)
{
	const struct row_buffer *buffer = rows->buffer;

	for (uint32_t i = 0; i < buffer->rows; i++) {
		rows->ios[buffer->op[i]]--;
		rows->bytes[buffer->op[i]] -= buffer->length_bytes[i];
	}
	rows->count -= buffer->rows;
	rows->unwritten += buffer->rows;
	rows->buffer->rows = 0;
}

int rows_flush(struct rows *rows)
{
	const struct row_buffer *buffer = rows->buffer;
	const void *const pointers[COLUMN_COUNT] = {
		buffer->submit_ns, buffer->latency_ns, buffer->queue_ns, buffer->offset_bytes, buffer->length_bytes,
		buffer->flags, buffer->tid, buffer->device, buffer->cpu, buffer->status, buffer->op,
	};

	if (!buffer->rows)
		return rows->error;
	if (!rows->error) {
		rows->error = keep_reserve(rows);
		if (!rows->error)
			rows->error = block_write_rows(rows->fd, &layout, buffer->rows, pointers);
		if (rows->error)
			cut_back(rows);
	}
	if (rows->error) {
		uncount(rows);
		return rows->error;
	}
	rows->whole_bytes += sizeof(struct block_header) + block_rows_bytes(&layout, buffer->rows);
	rows->buffer->rows = 0;
	return 0;
}

int rows_write_json(struct rows *rows, enum block_kind kind, const char *json)
{
	int err = block_write_json(rows->fd, kind, json);

	if (err)
		cut_back(rows);
	else
		rows->whole_bytes += sizeof(struct block_header) + strlen(json);
	return err;
}

void rows_add(struct rows *rows, const struct trace_row *row)
{
	struct row_buffer *buffer = rows->buffer;
	uint32_t at = buffer->rows++;

	buffer->submit_ns[at] = (int64_t)(row->submit_ns - rows->epoch_ns);
	buffer->latency_ns[at] = row->complete_ns >= row->submit_ns ? (int64_t)(row->complete_ns - row->submit_ns) : -1;
	buffer->queue_ns[at] = row->queued_ns && row->queued_ns <= row->submit_ns ?
			       (int64_t)(row->submit_ns - row->queued_ns) : -1;
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
