/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Blocks appended to a spool, which always ends with a whole block. A share of its size stays reserved on the disk
 * in a second file, so that a full disk leaves room for the trace.
 */
#pragma once

#include "blocks.h"

#include <sys/types.h>

struct spool_file {
	int fd;
	int reserve_fd; /* -1: none */
	unsigned int reserve_divisor; /* 2: half of what the file holds */
	uint64_t reserved_bytes;
	off_t whole_bytes; /* length up to the last whole block */
};

/* Writes begin at the present position of fd. Both descriptors stay the caller's. */
void spool_file_init(struct spool_file *file, int fd, int reserve_fd, unsigned int reserve_divisor);

/* These return 0 or a negative errno; the file then ends with its last whole block. */
int spool_file_write_layout(struct spool_file *file, const struct block_layout *layout);
int spool_file_write_rows(struct spool_file *file, const struct block_layout *layout, uint32_t rows,
			  const void *const *columns);
int spool_file_write_json(struct spool_file *file, enum block_kind kind, const char *json);

/* After a failed write: frees room for the names and the end block that still follow. */
void spool_file_release_reserve(struct spool_file *file);
