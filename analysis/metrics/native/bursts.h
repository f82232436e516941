/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Groups the I/Os of a class into bursts, by the time between them or by their labels. */
#pragma once

#include "number_map.h"

/* uncut: on times that include the idle time which the plan of the run left out before each I/O. */
struct burst {
	int64_t opened_ns; /* uncut begin of its first row, which is not always its earliest */
	int64_t uncut_start_ns;
	int64_t uncut_end_ns;
	int64_t start_ns;
	int64_t end_ns;
	int64_t ops;
	int64_t bytes;
	int64_t label; /* -1: found by time */
};

struct bursts {
	int64_t gap_ns;
	int64_t reach_ns; /* the latest uncut end of rows without label; INT64_MIN: none yet */
	struct burst *rows;
	size_t count;
	size_t capacity;
	size_t open; /* the last burst found by time */
	struct number_map labels;
	size_t *labeled; /* the row of each label */
	size_t labeled_capacity;
};

/* These return 0 or -ENOMEM. */
int bursts_add_new(struct bursts *bursts, const struct burst *row);
int bursts_add_labeled(struct bursts *bursts, const struct burst *row);
void bursts_deinit(struct bursts *bursts);

static inline int64_t least_of(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t greatest_of(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Adds the burst of one I/O. */
static inline void burst_grow(struct burst *burst, const struct burst *row)
{
	burst->uncut_start_ns = least_of(burst->uncut_start_ns, row->uncut_start_ns);
	burst->uncut_end_ns = greatest_of(burst->uncut_end_ns, row->uncut_end_ns);
	burst->start_ns = least_of(burst->start_ns, row->start_ns);
	burst->end_ns = greatest_of(burst->end_ns, row->end_ns);
	burst->ops++;
	burst->bytes += row->bytes;
}

/*
 * An I/O without label (below 0) starts a burst if its uncut begin is more than gap_ns after reach_ns. Returns 0 or
 * -ENOMEM.
 */
static inline int bursts_add(struct bursts *bursts, int64_t begin_ns, int64_t reach_ns, int64_t end_ns, int64_t bytes,
			     int32_t label, int64_t idle_removed_ns)
{
	int64_t uncut_ns = begin_ns + idle_removed_ns;
	struct burst row = { uncut_ns, uncut_ns, end_ns + idle_removed_ns, begin_ns, end_ns, 1, bytes,
			     label < 0 ? -1 : label };
	int err = 0;

	if (label >= 0)
		return bursts_add_labeled(bursts, &row);
	if (bursts->reach_ns == INT64_MIN || uncut_ns - bursts->reach_ns > bursts->gap_ns)
		err = bursts_add_new(bursts, &row);
	else
		burst_grow(&bursts->rows[bursts->open], &row);
	bursts->reach_ns = greatest_of(bursts->reach_ns, reach_ns + idle_removed_ns);
	return err;
}
