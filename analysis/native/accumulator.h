/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What an accumulator holds; only metrics.c and metrics_read.c know. */
#ifndef BLKREEL_ACCUMULATOR_H
#define BLKREEL_ACCUMULATOR_H

#include <stdbool.h>

#include "bursts.h"
#include "depth.h"
#include "histogram.h"
#include "views.h"

/* Busy time and makespan of intervals in the order of their begin. INT64_MAX, INT64_MIN: none yet. */
struct span {
	int64_t first_ns;
	int64_t reach_ns;
	int64_t busy_ns;
};

struct sums {
	int64_t ops;
	int64_t bytes;
	int64_t error_ops;
	int64_t unseen_ops;
	int64_t unseen_bytes;
	int64_t service_ns;
};

/* Of all classes, seen or not, and of the sizes of what may be negative: no other sum goes beyond 64 bits unless one of
 * these does. apart_ns: latencies and how far submits were from their deadlines.
 */
struct totals {
	int64_t bytes;
	int64_t service_ns;
	int64_t queue_ns;
	int64_t apart_ns;
};

/* Where I/Os of one class by one thread have gone. first_*: of the first in this part, for whether it goes on from the
 * last of the part before. -1 in first_offset before there was one.
 */
struct stream {
	int64_t ops;
	int64_t bytes;
	int64_t service_ns;
	int64_t sequential_ops;
	int64_t sequential_bytes;
	int64_t first_offset;
	int64_t first_bytes;
	int64_t first_device;
	int64_t end_offset;
	int64_t end_device;
};

struct thread {
	int64_t tid;
	struct stream of[DATA_CLASSES];
};

/* Completions in a second since the origin. */
struct second {
	int64_t number;
	int64_t ops;
};

/* Those that have some, in the order in which they were met: months with few I/Os have millions that have none. */
struct seconds {
	struct number_map numbers;
	struct second *rows;
	size_t capacity;
};

struct metrics {
	bool exact;
	int64_t last_submit_ns;
	int64_t last_seen_submit_ns;
	struct span spans[CLASSES_AND_ALL];
	struct sums sums[CLASSES];
	struct totals totals;
	struct bursts bursts[CLASSES];
	struct bursts planned[CLASSES];
	struct seconds seconds[CLASSES];
	struct depths depths;
	struct timeline timeline;
	struct heat heat;
	struct number_map tids;
	struct thread *threads;
	size_t thread_capacity;
	/* One or the other. */
	struct histogram histograms[DISTRIBUTIONS];
	int64_t *taken[DISTRIBUTIONS];
	size_t taken_count[DISTRIBUTIONS];
	size_t taken_capacity;
};

#endif
