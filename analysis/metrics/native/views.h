/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A trace over time in a fixed number of bins, whose width doubles when the trace is longer. */
#pragma once

#include "metrics.h"

/* Reads and writes. */
#define DATA_CLASSES 2
/* The initial sizes of a bin and a cell; a division by a constant is fast. */
#define FIRST_WIDTH_NS 1000000
#define FIRST_HEIGHT_BITS 20

/* Bins are FIRST_WIDTH_NS << doublings wide. */
struct timeline {
	int64_t bytes[DATA_CLASSES][TIMELINE_BINS];
	int64_t ops[DATA_CLASSES][TIMELINE_BINS];
	unsigned doublings;
};

struct heat {
	int64_t cells[DATA_CLASSES][HEAT_ROWS][HEAT_COLUMNS];
	unsigned doublings;
	unsigned height_doublings;
};

void timeline_widen(struct timeline *timeline);
void heat_widen(struct heat *heat);
void heat_heighten(struct heat *heat);

/* since_ns: completion since the origin. Any class is allowed, so that the bins span the trace. */
static inline void timeline_add(struct timeline *timeline, int kind, int64_t since_ns, int64_t bytes)
{
	int64_t bin = since_ns / FIRST_WIDTH_NS >> timeline->doublings;

	for (; bin >= TIMELINE_BINS; bin /= 2)
		timeline_widen(timeline);
	if (kind < DATA_CLASSES) {
		timeline->bytes[kind][bin] += bytes;
		timeline->ops[kind][bin]++;
	}
}

/* since_ns: submit since the origin. */
static inline void heat_add(struct heat *heat, int kind, int64_t since_ns, int64_t offset, int64_t bytes)
{
	int64_t column = since_ns / FIRST_WIDTH_NS >> heat->doublings;
	int64_t row = offset >> (FIRST_HEIGHT_BITS + heat->height_doublings);

	for (; column >= HEAT_COLUMNS; column /= 2)
		heat_widen(heat);
	for (; row >= HEAT_ROWS; row /= 2)
		heat_heighten(heat);
	heat->cells[kind][row][column] += bytes;
}
