/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Columns that a helper and Python exchange, in blocks over a pipe or in a file.
 * traces/spool/blocks.py has the same for Python.
 *
 * Functions return 0, unless they say otherwise, or a negative errno. Writes and reads are whole or
 * an error: a short one is continued, EINTR is retried.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCK_MAGIC 0x314b4c42u /* "BLK1" */
#define BLOCK_MAX_COLUMNS 32
#define BLOCK_MAX_PAYLOAD (1ull << 30)

enum block_kind {
	BLOCK_LAYOUT = 1,
	BLOCK_ROWS = 2,
	BLOCK_NOTE = 3,
	BLOCK_END = 4,
};

struct block_header {
	uint32_t magic;
	uint16_t kind;
	uint16_t zero16;
	uint32_t rows;
	uint32_t checksum; /* CRC-32 of the header with 0 here and of the payload, 1 for 0; 0: none */
	uint64_t payload_bytes;
};

struct block_column {
	const char *name;
	uint8_t width_bytes; /* 1, 2, 4 or 8; always signed */
};

/* For a list of columns, X(type, name): an entry of a layout, and a pointer to the array of that name in *block. */
#define BLOCK_COLUMN(type, name) { #name, sizeof(type) },
#define BLOCK_POINTER(type, name) block->name,

struct block_layout {
	const char *stream;
	const struct block_column *columns;
	size_t column_count;
};

/* Bytes that a column of this many rows takes in a rows block. */
static inline size_t block_padded(size_t nbytes)
{
	return (nbytes + 7) & ~(size_t)7;
}

/* Bytes of the payload of a rows block. */
size_t block_rows_bytes(const struct block_layout *layout, uint32_t rows);

/* The writers have a checksum where the reader wants one: in a file, which can be damaged, and not in a pipe. */
int block_write_layout(int fd, const struct block_layout *layout, bool checksum);

/* columns[i] points at `rows` values of the i-th column's width. */
int block_write_rows(int fd, const struct block_layout *layout, uint32_t rows, const void *const *columns,
		     bool checksum);

/* kind is BLOCK_NOTE or BLOCK_END; json is a whole JSON object. */
int block_write_json(int fd, enum block_kind kind, const char *json, bool checksum);

/* Reads the layout block. Returns the index of its layout, or -EPROTO for another one. */
int block_read_layout(int fd, const struct block_layout *const *layouts, size_t count);

/* Reads a header: -EPIPE at the end of the stream, -EPROTO if it is damaged. */
int block_read_header(int fd, struct block_header *header);

/* Reads exactly nbytes: -EPIPE if the stream ends before. */
int block_read_exactly(int fd, void *buffer, size_t nbytes);

/* Points columns[i] into a rows payload: -EPROTO if the length does not fit. */
int block_split_rows(const struct block_layout *layout, uint32_t rows, const void *payload,
		     uint64_t payload_bytes, const void **columns);
