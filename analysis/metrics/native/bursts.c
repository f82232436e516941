/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "bursts.h"

#include <errno.h>
#include <stdlib.h>

#include "array.h"

static int append(struct bursts *bursts, const struct burst *row)
{
	if (bursts->count == bursts->capacity && array_grow(&bursts->rows, &bursts->capacity, sizeof(*bursts->rows)))
		return -ENOMEM;
	bursts->rows[bursts->count++] = *row;
	return 0;
}

int bursts_add_new(struct bursts *bursts, const struct burst *row)
{
	bursts->open = bursts->count;
	return append(bursts, row);
}

int bursts_add_labeled(struct bursts *bursts, const struct burst *row)
{
	size_t known = bursts->labels.count;
	int64_t index = number_map_get(&bursts->labels, row->label);

	if (index < 0)
		return -ENOMEM;
	if ((size_t)index < known) {
		burst_grow(&bursts->rows[bursts->labeled[index]], row);
		return 0;
	}
	if (known == bursts->labeled_capacity &&
	    array_grow(&bursts->labeled, &bursts->labeled_capacity, sizeof(*bursts->labeled)))
		return -ENOMEM;
	bursts->labeled[index] = bursts->count;
	return append(bursts, row);
}

void bursts_deinit(struct bursts *bursts)
{
	free(bursts->rows);
	free(bursts->labeled);
	number_map_deinit(&bursts->labels);
}
