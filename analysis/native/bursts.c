/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "bursts.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_ROWS 64

static int append(struct bursts *bursts, const struct burst *row)
{
	if (bursts->count == bursts->capacity) {
		size_t capacity = bursts->capacity ? bursts->capacity * 2 : FIRST_ROWS;
		struct burst *rows = realloc(bursts->rows, capacity * sizeof(*rows));

		if (!rows)
			return -ENOMEM;
		bursts->rows = rows;
		bursts->capacity = capacity;
	}
	bursts->rows[bursts->count++] = *row;
	return 0;
}

int bursts_add_new(struct bursts *bursts, const struct burst *row)
{
	bursts->open = bursts->count;
	return append(bursts, row);
}

int bursts_add_labelled(struct bursts *bursts, const struct burst *row)
{
	size_t known = bursts->labels.count;
	int64_t index = number_map_get(&bursts->labels, row->label);

	if (index < 0)
		return index;
	if ((size_t)index < known) {
		burst_grow(&bursts->rows[bursts->labelled[index]], row->start_ns, row->end_ns, row->bytes);
		return 0;
	}
	if (known == bursts->labelled_capacity) {
		size_t capacity = known ? known * 2 : FIRST_ROWS;
		size_t *labelled = realloc(bursts->labelled, capacity * sizeof(*labelled));

		if (!labelled)
			return -ENOMEM;
		bursts->labelled = labelled;
		bursts->labelled_capacity = capacity;
	}
	bursts->labelled[index] = bursts->count;
	return append(bursts, row);
}

void bursts_deinit(struct bursts *bursts)
{
	free(bursts->rows);
	free(bursts->labelled);
	number_map_deinit(&bursts->labels);
}
