/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "keep_up.h"

#include <errno.h>
#include <stdlib.h>

#include "array.h"

#define NS_PER_MS 1000000
#define FEWEST_ROWS 4096

static int64_t floor_ms(int64_t ns)
{
	return ns / NS_PER_MS - (ns % NS_PER_MS < 0);
}

static int store(struct keep_up *keep_up, int64_t number, int64_t bytes)
{
	size_t known = keep_up->numbers.count;
	int64_t index = number_map_get(&keep_up->numbers, number);

	if (index < 0)
		return -ENOMEM;
	if ((size_t)index < known) {
		keep_up->rows[index].bytes += bytes;
		return 0;
	}
	if ((size_t)index >= keep_up->capacity &&
	    array_grow(&keep_up->rows, &keep_up->capacity, sizeof(*keep_up->rows)))
		return -ENOMEM;
	keep_up->rows[index] = (struct millisecond){ number, bytes };
	return 0;
}

/* Sums up what was completed by the last due time. Rows are moved once each time their number doubles. */
static int prune(struct keep_up *keep_up)
{
	size_t count = keep_up->numbers.count;
	int64_t due = floor_ms(keep_up->last_due_ns);
	int err = 0;

	number_map_deinit(&keep_up->numbers);
	keep_up->numbers = (struct number_map){ 0 };
	for (size_t i = 0; i < count && !err; i++) {
		struct millisecond row = keep_up->rows[i];

		if (row.number <= due)
			keep_up->by_due_bytes += row.bytes;
		else
			err = store(keep_up, row.number, row.bytes);
	}
	keep_up->prune_at = 2 * keep_up->numbers.count;
	if (keep_up->prune_at < FEWEST_ROWS)
		keep_up->prune_at = FEWEST_ROWS;
	return err;
}

int keep_up_add(struct keep_up *keep_up, int64_t due_ns, int64_t complete_ns, int64_t bytes)
{
	keep_up->bytes += bytes;
	if (due_ns > keep_up->last_due_ns)
		keep_up->last_due_ns = due_ns;
	if (complete_ns > keep_up->reach_ns)
		keep_up->reach_ns = complete_ns;
	if (floor_ms(complete_ns) <= floor_ms(keep_up->last_due_ns)) {
		keep_up->by_due_bytes += bytes;
		return 0;
	}
	if (keep_up->numbers.count >= keep_up->prune_at && keep_up->numbers.count) {
		int err = prune(keep_up);

		if (err)
			return err;
	}
	return store(keep_up, floor_ms(complete_ns), bytes);
}

void keep_up_deinit(struct keep_up *keep_up)
{
	free(keep_up->rows);
	number_map_deinit(&keep_up->numbers);
}
