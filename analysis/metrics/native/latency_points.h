/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Latency over time in a fixed number of cells: columns of submit time, whose width doubles when the trace is longer, and
 * rows of latency, POINT_BITS bins per power of two. Each cell has its slowest I/O, so that no slow I/O is lost.
 */
#pragma once

#include "binning.h"
#include "metrics.h"

#include <stddef.h>

/* Reads and writes. */
#define POINT_CLASSES 2
#define POINT_COLUMNS 256
/* The last row takes all latencies from 2^41 ns (37 minutes) on. */
#define POINT_ROWS 164
#define POINT_BITS 2
/* A column is 1 << FIRST_COLUMN_BITS ns wide at first. */
#define FIRST_COLUMN_BITS 16

/* The I/Os of a cell, and submit and latency of the slowest of them, or of the first of these. */
struct latency_point {
	int64_t ops;
	int64_t since_ns;
	int64_t latency_ns;
};

struct latency_points {
	struct latency_point (*cells)[POINT_COLUMNS][POINT_ROWS]; /* of each class */
	unsigned doublings;
	int64_t used; /* columns up to the last with I/Os */
};

int latency_points_init(struct latency_points *points);
void latency_points_deinit(struct latency_points *points);
void latency_points_widen(struct latency_points *points);

/* since_ns: submit since the origin, not before that of an earlier call. */
static inline void latency_points_add(struct latency_points *points, int kind, int64_t since_ns, int64_t latency_ns)
{
	int64_t column = since_ns >> (FIRST_COLUMN_BITS + points->doublings);
	unsigned row = log_linear_bin((uint64_t)latency_ns, POINT_BITS);
	struct latency_point *cell;

	for (; column >= POINT_COLUMNS; column /= 2)
		latency_points_widen(points);
	if (column >= points->used)
		points->used = column + 1;
	cell = &points->cells[kind][column][row < POINT_ROWS ? row : POINT_ROWS - 1];
	if (!cell->ops || latency_ns > cell->latency_ns) {
		cell->since_ns = since_ns;
		cell->latency_ns = latency_ns;
	}
	cell->ops++;
}

/* Returns the length of PART_LATENCY_POINTS in int64, and writes it if `capacity` allows. */
int64_t latency_points_read(const struct latency_points *points, int64_t *values, size_t capacity);
