/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data of compares, which no trace has: the blocks of the target, which the caller has read before the run and holds
 * in memory (replay/prepare/compares.py).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Blocks of the target, and where their data is in the memory. */
struct compared_range {
	int64_t start_bytes, end_bytes, at_bytes;
};

struct compares {
	int64_t count;
	const struct compared_range *ranges; /* in ascending order, without overlap */
	const char *memory; /* NULL: no data, so the target gets no compares */
	size_t memory_bytes;
};

/*
 * Maps the memory of `fd` and closes it: the number of ranges as int64_t, the ranges, then the data.
 * Returns 0 or a negative errno; -EINVAL for invalid ranges.
 */
int compares_map(struct compares *compares, int fd);
void compares_unmap(struct compares *compares);

/* The data of blocks of the target; NULL if they are not all in one range. */
const void *compares_data(const struct compares *compares, int64_t offset_bytes, int64_t length_bytes);
