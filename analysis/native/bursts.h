/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Cuts the I/Os of one class into bursts, by the time between them or by the labels that they carry. */
#ifndef BLKREEL_BURSTS_H
#define BLKREEL_BURSTS_H

#include "number_map.h"

/* opened: the begin of the row with which it began; rows need not come in the order of their begins. label: -1 for one
 * that was found by time.
 */
struct burst {
	int64_t opened_ns;
	int64_t start_ns;
	int64_t end_ns;
	int64_t ops;
	int64_t bytes;
	int64_t label;
};

/* reach_ns: the latest of those without label, INT64_MIN before the first. open: the burst found by time that still grows. */
struct bursts {
	int64_t gap_ns;
	int64_t reach_ns;
	struct burst *rows;
	size_t count;
	size_t capacity;
	size_t open;
	struct number_map labels;
	size_t *labelled;
	size_t labelled_capacity;
};

/* One I/O: a new burst starts where begin - the latest reach before > gap. label: below 0 for none. -ENOMEM. */
int bursts_add_new(struct bursts *bursts, const struct burst *row);
int bursts_add_labelled(struct bursts *bursts, const struct burst *row);
void bursts_deinit(struct bursts *bursts);

static inline void burst_grow(struct burst *burst, int64_t begin_ns, int64_t end_ns, int64_t bytes)
{
	if (begin_ns < burst->start_ns)
		burst->start_ns = begin_ns;
	if (end_ns > burst->end_ns)
		burst->end_ns = end_ns;
	burst->ops++;
	burst->bytes += bytes;
}

static inline int bursts_add(struct bursts *bursts, int64_t begin_ns, int64_t reach_ns, int64_t end_ns, int64_t bytes,
			     int32_t label)
{
	struct burst row = { begin_ns, begin_ns, end_ns, 1, bytes, label < 0 ? -1 : label };
	int err = 0;

	if (label >= 0)
		return bursts_add_labelled(bursts, &row);
	if (bursts->reach_ns == INT64_MIN || begin_ns - bursts->reach_ns > bursts->gap_ns)
		err = bursts_add_new(bursts, &row);
	else
		burst_grow(&bursts->rows[bursts->open], begin_ns, end_ns, bytes);
	if (reach_ns > bursts->reach_ns)
		bursts->reach_ns = reach_ns;
	return err;
}

#endif
