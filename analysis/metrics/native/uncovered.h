/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The time at which no I/O of a class is outstanding or waits for a full queue. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An I/O counts as waiting for a full queue for at most this long, so that older intervals need no memory. */
#define QUEUED_LIMIT_NS 60000000000ll

struct interval {
	int64_t begin_ns;
	int64_t end_ns;
};

/* Intervals in ascending order from rows[first] on; the last one has no end. An I/O that waited for a full queue may fill
 * intervals before its submit, so those of the last QUEUED_LIMIT_NS are stored. covered_ns: what this part of the trace
 * has added to the covered time.
 */
struct uncovered {
	struct interval *rows;
	size_t first;
	size_t count;
	size_t capacity;
	int64_t covered_ns;
};

/* All time is uncovered. These return 0 or -ENOMEM. */
int uncovered_init(struct uncovered *uncovered);
/* Covers [begin_ns, end_ns), in the order of submit_ns; submit_ns is between them. has_queued: whether later I/Os may
 * begin before their submit.
 */
int uncovered_fill(struct uncovered *uncovered, int64_t begin_ns, int64_t end_ns, int64_t submit_ns, bool has_queued);
/* Restores the intervals of the part before. Returns -EINVAL if they are not ascending or the last one has an end. */
int uncovered_restore(struct uncovered *uncovered, const struct interval *rows, size_t count);
/* Drops intervals that no I/O with this or a later submit can fill. */
void uncovered_prune(struct uncovered *uncovered, int64_t submit_ns);
void uncovered_deinit(struct uncovered *uncovered);
