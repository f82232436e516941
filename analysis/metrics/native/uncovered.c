/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "uncovered.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"

static int append(struct uncovered *uncovered, struct interval row)
{
	if (uncovered->count == uncovered->capacity) {
		int err;

		/* Moves only when at least half of the rows were dropped: each row is moved once on average. */
		if (uncovered->first > uncovered->capacity / 2) {
			uncovered->count -= uncovered->first;
			memmove(uncovered->rows, uncovered->rows + uncovered->first,
				uncovered->count * sizeof(*uncovered->rows));
			uncovered->first = 0;
		}
		err = uncovered->count < uncovered->capacity ? 0 :
			array_grow(&uncovered->rows, &uncovered->capacity, sizeof(*uncovered->rows));
		if (err)
			return err;
	}
	uncovered->rows[uncovered->count++] = row;
	return 0;
}

int uncovered_init(struct uncovered *uncovered)
{
	return append(uncovered, (struct interval){ INT64_MIN, INT64_MAX });
}

void uncovered_prune(struct uncovered *uncovered, int64_t submit_ns)
{
	while (uncovered->first + 1 < uncovered->count &&
	       uncovered->rows[uncovered->first].end_ns <= submit_ns - QUEUED_LIMIT_NS)
		uncovered->first++;
}

int uncovered_fill(struct uncovered *uncovered, int64_t begin_ns, int64_t end_ns, int64_t submit_ns, bool has_queued)
{
	struct interval *last = &uncovered->rows[uncovered->count - 1];
	size_t at = uncovered->count - 1;

	if (begin_ns == end_ns)
		return 0;
	if (begin_ns > last->begin_ns) {
		uncovered->covered_ns += end_ns - begin_ns;
		if (!has_queued) {
			last->begin_ns = end_ns;
			return 0;
		}
		last->end_ns = begin_ns;
		uncovered_prune(uncovered, submit_ns);
		return append(uncovered, (struct interval){ end_ns, INT64_MAX });
	}
	if (end_ns > last->begin_ns) {
		uncovered->covered_ns += end_ns - last->begin_ns;
		last->begin_ns = end_ns;
	}
	/* All others end before submit_ns, so also before end_ns. */
	for (; at > uncovered->first && uncovered->rows[at - 1].end_ns > begin_ns; at--) {
		struct interval *row = &uncovered->rows[at - 1];

		if (row->begin_ns < begin_ns) {
			uncovered->covered_ns += row->end_ns - begin_ns;
			row->end_ns = begin_ns;
			break;
		}
		uncovered->covered_ns += row->end_ns - row->begin_ns;
	}
	if (at < uncovered->count - 1) {
		uncovered->rows[at] = uncovered->rows[uncovered->count - 1];
		uncovered->count = at + 1;
	}
	return 0;
}

int uncovered_restore(struct uncovered *uncovered, const struct interval *rows, size_t count)
{
	uncovered->first = uncovered->count = 0;
	for (size_t i = 0; i < count; i++) {
		if (rows[i].begin_ns >= rows[i].end_ns || (i && rows[i].begin_ns <= rows[i - 1].end_ns) ||
		    append(uncovered, rows[i]))
			return -EINVAL;
	}
	return count && rows[count - 1].end_ns == INT64_MAX ? 0 : -EINVAL;
}

void uncovered_deinit(struct uncovered *uncovered)
{
	free(uncovered->rows);
}
