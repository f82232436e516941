/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Columns crossing between a helper and Python, in blocks over a pipe.
 * traces/blocks.py states the contract; the two must change together.
 *
 * Functions return 0, unless they say otherwise, or a negative errno. Writes and reads are whole or
 * an error: a short one is carried on, EINTR is retried.
 */
#ifndef BLKREEL_BLOCKS_H
#define BLKREEL_BLOCKS_H

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
	uint32_t zero32;
	uint64_t payload_bytes;
};

struct block_column {
	const char *name;
	uint8_t width_bytes; /* 1, 2, 4 or 8; always signed */
};

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

int block_write_layout(int fd, const struct block_layout *layout);

/* columns[i] points at `rows` values of the i-th column's width. */
int block_write_rows(int fd, const struct block_layout *layout, uint32_t rows, const void *const *columns);

/* kind is BLOCK_NOTE or BLOCK_END; json is a whole JSON object. */
int block_write_json(int fd, enum block_kind kind, const char *json);

/* Reads the layout block: which of these layouts it states, or -EPROTO where it is none of them. */
int block_read_layout(int fd, const struct block_layout *const *layouts, size_t count);

/* Reads a header: -EPIPE at the end of the stream, -EPROTO where it is damaged. */
int block_read_header(int fd, struct block_header *header);

/* Reads exactly nbytes: -EPIPE where the stream ends before. */
int block_read_exactly(int fd, void *buffer, size_t nbytes);

/* Points columns[i] into a rows payload: -EPROTO where the length does not fit. */
int block_split_rows(const struct block_layout *layout, uint32_t rows, const void *payload,
		     uint64_t payload_bytes, const void **columns);

#endif
