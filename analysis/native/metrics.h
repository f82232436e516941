/* SPDX-License-Identifier: GPL-2.0-or-later */
/* All figures of a trace in one pass over columns as Arrow holds them; analysis/metrics.py calls it.
 *
 * An accumulator takes the batches of one part of a trace, in the order of submission, and what an earlier part leaves to
 * it (the carry). Rows whose completion was not seen are counted, and enter nothing else. Times are ns of one clock, of
 * any beginning; sums are 64 bits. What it has found is read as arrays of int64, each with a layout of its own, below.
 */
#ifndef BLKREEL_METRICS_H
#define BLKREEL_METRICS_H

#include <stddef.h>
#include <stdint.h>

enum metrics_class {
	CLASS_READ,
	CLASS_WRITE,
	CLASS_OTHER,
	CLASSES,
	/* Behind the classes, where there are figures of all together. */
	CLASS_ALL = CLASSES,
	CLASSES_AND_ALL,
};

/* Of the first four there is one for each class: DISTRIBUTION_QUEUE + CLASS_WRITE. */
enum metrics_distribution {
	DISTRIBUTION_LATENCY = 0,
	DISTRIBUTION_RESPONSE = 3,
	DISTRIBUTION_QUEUE = 6,
	DISTRIBUTION_SIZE = 9,
	DISTRIBUTION_LATENESS_HOST = 12,
	DISTRIBUTION_LATENESS_DEVICE,
	DISTRIBUTION_SUBMIT_GAP,
	DISTRIBUTION_IDLE_GAP,
	DISTRIBUTIONS,
};

/* What metrics_read() gives, and of which (a class, a distribution, or 0). */
enum metrics_part {
	/* Class: ops, bytes, error ops, unseen ops, unseen bytes, service, busy, makespan. All: busy, makespan last. */
	PART_SUMS,
	/* Distribution: count, total, smallest, largest; then bin, count, total of each bin that is not empty. */
	PART_HISTOGRAM,
	/* Class: reach of those found by time, INT64_MIN for none; then opened, start, end, ops, bytes, label of each. */
	PART_BURSTS,
	PART_PLANNED,
	/* Class: number and completions of each second since the origin that has some, in any order. */
	PART_SECONDS,
	/* Class or all: ns at 0, 1, 2 .. outstanding, until the last submit where some still are. */
	PART_DEPTH,
	/* Width in ns; bytes of reads, bytes of writes, reads, writes in TIMELINE_BINS each. */
	PART_TIMELINE,
	/* Width in ns, height in bytes; bytes of reads, then writes, in HEAT_ROWS by HEAT_COLUMNS. */
	PART_HEAT,
	/* struct thread of each. */
	PART_THREADS,
	/* A carry, as metrics_new() takes it. */
	PART_CARRY,
};

#define TIMELINE_BINS 400
#define HEAT_ROWS 32
#define HEAT_COLUMNS 64

/* NULL for a column that is not there, but submit_ns, latency_ns, length_bytes and op. */
struct metrics_columns {
	int64_t rows;
	const int64_t *submit_ns;
	const int64_t *latency_ns;
	const int64_t *queue_ns;
	const int64_t *offset_bytes;
	const int64_t *length_bytes;
	const int64_t *due_ns;
	const int8_t *op;
	const int32_t *flags;
	const int32_t *tid;
	const int32_t *burst;
	const int16_t *device;
	const int16_t *status;
};

/* At the beginning of a carry; behind it `outstanding` pairs of completion and class, in any order. INT64_MAX in `first`
 * and INT64_MIN in `reach` and the last submits: none yet.
 */
struct metrics_carry {
	int64_t last_submit_ns;
	int64_t last_seen_submit_ns;
	int64_t first_ns[CLASSES_AND_ALL];
	int64_t reach_ns[CLASSES_AND_ALL];
	int64_t outstanding;
};

struct metrics;

/* exact: values are not put into bins, but handed out by metrics_taken(). carry: NULL at the beginning of a trace.
 * NULL where there is no memory, or for what is no carry.
 */
struct metrics *metrics_new(int64_t gap_ns, int exact, const int64_t *carry, size_t carry_length);
void metrics_free(struct metrics *metrics);

/* 0, or what makes the accumulator worthless: -ENOMEM; -EILSEQ, rows are not in the order of their submission; -ERANGE,
 * times of more than 73 years, places below 0, lengths that no drive has, or sums of these beyond 64 bits.
 */
int metrics_feed(struct metrics *metrics, const struct metrics_columns *columns);

/* The values of a distribution in the rows of the last metrics_feed(), until the next one. Of an exact accumulator. */
int64_t metrics_taken(const struct metrics *metrics, int distribution, const int64_t **values);

/* Length of a part in int64; nothing is written where `capacity` is less. -EINVAL where there is no such part. */
int64_t metrics_read(struct metrics *metrics, int part, int which, int64_t *values, size_t capacity);

#endif
