/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "views.h"

/* Adds up neighbors in the first half and clears the second. */
static void halve(int64_t *bins, int count, int stride)
{
	for (int i = 0; i < count / 2; i++)
		bins[i * stride] = bins[2 * i * stride] + bins[(2 * i + 1) * stride];
	for (int i = count / 2; i < count; i++)
		bins[i * stride] = 0;
}

void timeline_widen(struct timeline *timeline)
{
	for (int kind = 0; kind < DATA_CLASSES; kind++) {
		halve(timeline->bytes[kind], TIMELINE_BINS, 1);
		halve(timeline->ops[kind], TIMELINE_BINS, 1);
	}
	timeline->doublings++;
}

void heat_widen(struct heat *heat)
{
	for (int kind = 0; kind < DATA_CLASSES; kind++) {
		for (int row = 0; row < HEAT_ROWS; row++)
			halve(heat->cells[kind][row], HEAT_COLUMNS, 1);
	}
	heat->doublings++;
}

void heat_heighten(struct heat *heat)
{
	for (int kind = 0; kind < DATA_CLASSES; kind++) {
		for (int column = 0; column < HEAT_COLUMNS; column++)
			halve(&heat->cells[kind][0][column], HEAT_ROWS, HEAT_COLUMNS);
	}
	heat->height_doublings++;
}
