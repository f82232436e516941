/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "latency_points.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define POINT_LENGTH 4

int latency_points_init(struct latency_points *points)
{
	points->cells = calloc(POINT_CLASSES, sizeof(*points->cells));
	return points->cells ? 0 : -ENOMEM;
}

void latency_points_deinit(struct latency_points *points)
{
	free(points->cells);
}

/* The earlier of two equally slow I/Os stays. */
static struct latency_point joined(struct latency_point earlier, struct latency_point later)
{
	struct latency_point slowest = later.ops && (!earlier.ops || later.latency_ns > earlier.latency_ns) ? later :
													      earlier;

	slowest.ops = earlier.ops + later.ops;
	return slowest;
}

void latency_points_widen(struct latency_points *points)
{
	int64_t half = (points->used + 1) / 2;

	for (int kind = 0; kind < POINT_CLASSES; kind++) {
		struct latency_point(*cells)[POINT_ROWS] = points->cells[kind];

		for (int64_t column = 0; column < half; column++) {
			for (int row = 0; row < POINT_ROWS; row++)
				cells[column][row] = joined(cells[2 * column][row], cells[2 * column + 1][row]);
		}
		memset(cells + half, 0, (size_t)(points->used - half) * sizeof(*cells));
	}
	points->used = half;
	points->doublings++;
}

int64_t latency_points_read(const struct latency_points *points, int64_t *values, size_t capacity)
{
	size_t length = 1;

	if (capacity)
		values[0] = (int64_t)1 << (FIRST_COLUMN_BITS + points->doublings);
	for (int kind = 0; kind < POINT_CLASSES; kind++) {
		for (int64_t column = 0; column < points->used; column++) {
			for (int row = 0; row < POINT_ROWS; row++) {
				const struct latency_point *cell = &points->cells[kind][column][row];

				if (!cell->ops)
					continue;
				if (length + POINT_LENGTH <= capacity) {
					const int64_t numbers[POINT_LENGTH] = { kind, cell->since_ns, cell->latency_ns,
										cell->ops };

					memcpy(values + length, numbers, sizeof(numbers));
				}
				length += POINT_LENGTH;
			}
		}
	}
	return (int64_t)length;
}
