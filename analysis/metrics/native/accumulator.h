/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The state of an accumulator, private to metrics.c and metrics_read.c. */
#pragma once

#include <stdbool.h>

#include "alignment.h"
#include "bursts.h"
#include "depth.h"
#include "histogram.h"
#include "keep_up.h"
#include "latency_points.h"
#include "uncovered.h"
#include "views.h"

/* Busy time and makespan. first_ns INT64_MAX, reach_ns INT64_MIN: no I/O yet. */
struct span {
	int64_t first_ns;
	int64_t reach_ns;
	int64_t busy_ns;
};

struct sums {
	int64_t ops;
	int64_t bytes;
	int64_t error_ops;
	int64_t unseen_ops; /* without a completion */
	int64_t unseen_bytes;
	int64_t service_ns;
};

/* Over all classes, to detect overflow: no other sum overflows before one of these. apart_ns: latencies, and distances of
 * submits from their deadlines.
 */
struct totals {
	int64_t bytes;
	int64_t service_ns;
	int64_t queue_ns;
	int64_t apart_ns;
};

/* The offsets of one class of I/O by one thread on one device. first_*: the first I/O of this part, which may continue
 * the previous part; first_offset -1: none yet.
 */
struct stream {
	int64_t ops;
	int64_t bytes;
	int64_t service_ns;
	int64_t sequential_ops;
	int64_t sequential_bytes;
	int64_t first_offset;
	int64_t first_bytes;
	int64_t end_offset;
};

/* A thread on a device. key: tid * 65536 + device. */
struct thread {
	int64_t key;
	struct stream of[DATA_CLASSES];
};

/* Completions in a second since the origin. */
struct second {
	int64_t number;
	int64_t ops;
};

/* Only seconds with completions, because sparse traces span millions of seconds. */
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
	struct uncovered uncovered[CLASSES];
	int64_t idle_ns; /* gaps longer than that of bursts, with nothing outstanding */
	struct keep_up keep_up;
	struct totals totals;
	struct bursts bursts[CLASSES];
	struct bursts planned[CLASSES];
	struct seconds seconds[CLASSES];
	struct depths depths;
	struct timeline timeline;
	struct heat *heats[HEAT_DEVICES]; /* NULL: no I/O yet */
	struct latency_points latency_points;
	struct alignment alignment;
	struct number_map thread_keys;
	struct thread *threads;
	size_t thread_capacity;
	/* Without `exact`, or with it. */
	struct histogram histograms[DISTRIBUTIONS];
	int64_t *taken[DISTRIBUTIONS];
	size_t taken_count[DISTRIBUTIONS];
	size_t taken_capacity;
};
