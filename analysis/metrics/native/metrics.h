/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Computes all metrics of a trace in one pass over Arrow columns; analysis/metrics/accumulator.py calls it.
 *
 * An accumulator takes the batches of one part of a trace in submit order, and the boundary state of the part before.
 * Rows without a completion are only counted. Times are ns since any origin; sums have 64 bits. Results are arrays of
 * int64 in the layouts below.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum metrics_class {
	CLASS_READ,
	CLASS_WRITE,
	CLASS_OTHER,
	CLASSES,
	/* All classes together. */
	CLASS_ALL = CLASSES,
	CLASSES_AND_ALL,
};

/* The first four exist for each class: DISTRIBUTION_QUEUE + CLASS_WRITE. */
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

/* Results of metrics_read(), of a class, a distribution, or 0. */
enum metrics_part {
	/* Class: ops, bytes, error ops, unseen ops, unseen bytes, service, busy, makespan, wait. All: 0 but for busy, makespan
	 * and, instead of the wait, the idle time beyond the burst gap.
	 */
	PART_SUMS,
	/* Distribution: count, total, smallest, largest; then bin, count, total of each nonempty bin. */
	PART_HISTOGRAM,
	/* Class: reach_ns of struct bursts; then the members of struct burst, of each burst. */
	PART_BURSTS,
	PART_PLANNED,
	/* Class: number and completions of each second since the origin with completions, in any order. */
	PART_SECONDS,
	/* Class or all: ns at 0, 1, 2 ... outstanding, up to the last submit if some still are. */
	PART_DEPTH,
	/* Width in ns; bytes of reads, bytes of writes, reads, writes in TIMELINE_BINS each. */
	PART_TIMELINE,
	/* Device: width in ns, height in bytes; bytes of reads, then writes, in HEAT_ROWS by HEAT_COLUMNS. Empty without I/O. */
	PART_HEAT,
	/* struct thread of each thread. */
	PART_THREADS,
	/* The boundary state, as metrics_new() takes it. */
	PART_BOUNDARY_STATE,
	/* Of writes with a due time: last due or INT64_MIN, last completion, bytes, bytes completed by the millisecond of the
	 * last due; then millisecond and bytes of each later one with completions, in any order.
	 */
	PART_KEEP_UP,
	/* Width of a column in ns; then class, submit since the origin, latency, and number of I/Os of each cell with I/Os, by
	 * class, column and row (latency_points.h).
	 */
	PART_LATENCY_POINTS,
	/* struct alignment (alignment.h): number of writes; of ALIGNMENT_BLOCKS block sizes from 4 KiB on, doubling, the writes
	 * that are not aligned, then those that begin in the block in which the previous write of their drive ended; of each of
	 * HEAT_DEVICES drives the first byte of the first write and the last byte of the last one.
	 */
	PART_ALIGNMENT,
};

#define TIMELINE_BINS 400
#define ALIGNMENT_BLOCKS 5
#define HEAT_ROWS 32
#define HEAT_COLUMNS 64
/* Devices from this number on have no heat map. */
#define HEAT_DEVICES 16

/* NULL: a missing column. submit_ns, latency_ns, length_bytes and op are required. */
struct metrics_columns {
	int64_t rows;
	const int64_t *submit_ns;
	const int64_t *latency_ns;
	const int64_t *queue_ns;
	const int64_t *offset_bytes;
	const int64_t *length_bytes;
	const int64_t *due_ns;
	const int64_t *idle_removed_ns;
	const int8_t *op;
	const int32_t *flags;
	const int32_t *tid;
	const int32_t *burst;
	const int16_t *device;
	const int16_t *status;
};

/* The head of a boundary state; `outstanding` pairs of completion and class follow, in any order, then `uncovered` pairs
 * of begin and end of each class (struct uncovered). INT64_MAX in first_ns, INT64_MIN in reach_ns and the last submits:
 * none yet.
 */
struct boundary_state {
	int64_t last_submit_ns;
	int64_t last_seen_submit_ns;
	int64_t first_ns[CLASSES_AND_ALL];
	int64_t reach_ns[CLASSES_AND_ALL];
	int64_t outstanding;
	int64_t uncovered[CLASSES];
};

struct metrics;

/* exact: metrics_taken() returns all values instead of bins. state: NULL at the beginning of a trace. Returns NULL without
 * memory or for an invalid state.
 */
struct metrics *metrics_new(int64_t gap_ns, int exact, const int64_t *state, size_t state_length);
void metrics_free(struct metrics *metrics);

/* Returns 0, or an error after which the accumulator must not be used: -ENOMEM; -EILSEQ, rows are not in submit order;
 * -ERANGE, times beyond 73 years, negative offsets, lengths that no drive has, or a sum that overflows 64 bits.
 */
int metrics_feed(struct metrics *metrics, const struct metrics_columns *columns);

/* The values of a distribution in the rows of the last metrics_feed(), valid until the next one, if `exact`. */
int64_t metrics_taken(const struct metrics *metrics, int distribution, const int64_t **values);

/* As PART_BURSTS or PART_PLANNED of metrics_read(), without a copy: the number of bursts, or -EINVAL. rows: struct burst of
 * each, valid until the next metrics_feed().
 */
int64_t metrics_bursts(const struct metrics *metrics, int part, int which, int64_t *reach_ns, const int64_t **rows);

/* Returns the length of a part in int64, and writes it if `capacity` allows; -EINVAL: no such part. */
int64_t metrics_read(struct metrics *metrics, int part, int which, int64_t *values, size_t capacity);
