/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Rows of a trace as blocks in a file, with the columns of the capture helper. */
#pragma once

#include "codes.h"
#include "spool_file.h"
#include "trace_rows.h"

#include <stdint.h>

#define TIME_UNSEEN UINT64_MAX /* time 0 is that of the first event in a dump of `blkparse -d` */

struct trace_row {
	uint64_t queued_ns; /* or TIME_UNSEEN, as complete_ns */
	uint64_t submit_ns;
	uint64_t complete_ns;
	uint64_t sector;
	uint32_t length_bytes;
	uint32_t flags;
	int32_t tid;
	int16_t device;
	int16_t cpu;
	int16_t status;
	int8_t op;
};

struct row_buffer;

struct rows {
	struct spool_file file;
	uint64_t epoch_ns;
	uint64_t count; /* written or buffered */
	uint64_t unwritten; /* added after a write had failed */
	uint64_t ios[OP_COUNT];
	uint64_t bytes[OP_COUNT];
	int error; /* negative errno of the first write that failed */
	struct row_buffer *buffer;
};

/*
 * Writes the layout at the present position of fd. A quarter of what the file holds stays free through reserve_fd
 * (-1: none), so that a full disk leaves room for the trace. Returns 0 or a negative errno.
 */
int rows_init(struct rows *rows, int fd, int reserve_fd);
void rows_deinit(struct rows *rows);

void rows_add(struct rows *rows, const struct trace_row *row);

/* Writes the buffered rows. Returns 0 or the negative errno of the first write that failed. */
int rows_flush(struct rows *rows);
