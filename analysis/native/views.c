/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "views.h"

#include <string.h>

/* Neighbours add up in the first half, and the second is empty. */
static void pair(int64_t *bins, int count, int stride)
{
	for (int i = 0; i < count / 2; i++)
		bins[i * stride] = bins[2 * i * stride] + bins[(2 * i + 1) * stride];
	for (int i = count / 2; i < count; i++)
		bins[i * stride] = 0;
}

void timeline_widen(struct timeline *timeline)
{
	for (int kind = 0; kind < DATA_CLASSES; kind++) {
		pair(timeline->bytes[kind], TIMELINE_BINS, 1);
		pair(timeline->ops[kind], TIMELINE_BINS, 1);
	}
	timeline->doublings++;
}

void heat_widen(struct heat *heat)
{
	for (int kind = 0; kind < DATA_CLASSES; kind++) {
		for (int row = 0; row < HEAT_ROWS; row++)
			pair(heat->cells[kind][row], HEAT_COLUMNS, 1);
	}
	heat->doublings++;
}

void heat_heighten(struct heat *heat)
{
	for (int kind = 0; kind < DATA_CLASSES; kind++) {
		for (int column = 0; column < HEAT_COLUMNS; column++)
			pair(&heat->cells[kind][0][column], HEAT_ROWS, HEAT_COLUMNS);
	}
	heat->height_doublings++;
}
