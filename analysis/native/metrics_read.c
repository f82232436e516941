/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <errno.h>
#include <string.h>

#include "accumulator.h"

static int64_t give(int64_t *values, size_t capacity, const void *from, size_t length)
{
	if (length && length <= capacity)
		memcpy(values, from, length * sizeof(*values));
	return length;
}

static int64_t makespan_of(const struct span *span)
{
	return span->first_ns == INT64_MAX ? 0 : span->reach_ns - span->first_ns;
}

static int64_t read_sums(const struct metrics *metrics, int kind, int64_t *values, size_t capacity)
{
	const struct span *span = &metrics->spans[kind];
	struct sums none = { 0 };
	const struct sums *sums = kind < CLASSES ? &metrics->sums[kind] : &none;
	int64_t numbers[] = { sums->ops, sums->bytes, sums->error_ops, sums->unseen_ops, sums->unseen_bytes,
			      sums->service_ns, span->busy_ns, makespan_of(span) };

	return give(values, capacity, numbers, sizeof(numbers) / sizeof(*numbers));
}

static int64_t read_bursts(const struct bursts *bursts, int64_t *values, size_t capacity)
{
	size_t length = 1 + bursts->count * sizeof(*bursts->rows) / sizeof(*values);

	if (length > capacity)
		return length;
	values[0] = bursts->reach_ns;
	give(values + 1, capacity - 1, bursts->rows, length - 1);
	return length;
}

/* What is outstanding now was so until the last submit, whatever comes. */
static int64_t read_depth(struct metrics *metrics, int kind, int64_t *values, size_t capacity)
{
	struct depth *depth = &metrics->depths.of[kind];
	size_t used = depth->capacity;

	if (depth->outstanding)
		depth_pass(depth, metrics->last_seen_submit_ns);
	while (used && !depth->ns[used - 1])
		used--;
	return give(values, capacity, depth->ns, used);
}

static int64_t read_timeline(const struct timeline *timeline, int64_t *values, size_t capacity)
{
	const size_t bins = DATA_CLASSES * TIMELINE_BINS;

	if (capacity < 1 + 2 * bins)
		return 1 + 2 * bins;
	values[0] = (int64_t)FIRST_WIDTH_NS << timeline->doublings;
	memcpy(values + 1, timeline->bytes, bins * sizeof(*values));
	memcpy(values + 1 + bins, timeline->ops, bins * sizeof(*values));
	return 1 + 2 * bins;
}

static int64_t read_heat(const struct heat *heat, int64_t *values, size_t capacity)
{
	const size_t cells = DATA_CLASSES * HEAT_ROWS * HEAT_COLUMNS;

	if (capacity < 2 + cells)
		return 2 + cells;
	values[0] = (int64_t)FIRST_WIDTH_NS << heat->doublings;
	values[1] = 1ll << (FIRST_HEIGHT_BITS + heat->height_doublings);
	memcpy(values + 2, heat->cells, cells * sizeof(*values));
	return 2 + cells;
}

static int64_t read_carry(struct metrics *metrics, int64_t *values, size_t capacity)
{
	const struct depths *depths = &metrics->depths;
	struct metrics_carry carry = { .last_submit_ns = metrics->last_submit_ns,
				       .last_seen_submit_ns = metrics->last_seen_submit_ns,
				       .outstanding = depths->tail - depths->head + depths->far_count };
	size_t head = sizeof(carry) / sizeof(*values), near = 2 * (depths->tail - depths->head);
	size_t length = head + 2 * carry.outstanding;

	for (int kind = 0; kind < CLASSES_AND_ALL; kind++) {
		carry.first_ns[kind] = metrics->spans[kind].first_ns;
		carry.reach_ns[kind] = metrics->spans[kind].reach_ns;
	}
	if (length > capacity)
		return length;
	memcpy(values, &carry, sizeof(carry));
	give(values + head, capacity - head, depths->near + depths->head, near);
	give(values + head + near, capacity - head - near, depths->far, length - head - near);
	return length;
}

int64_t metrics_read(struct metrics *metrics, int part, int which, int64_t *values, size_t capacity)
{
	const int limits[] = { [PART_SUMS] = CLASSES_AND_ALL, [PART_HISTOGRAM] = metrics->exact ? 0 : DISTRIBUTIONS,
			       [PART_BURSTS] = CLASSES, [PART_PLANNED] = CLASSES, [PART_SECONDS] = CLASSES,
			       [PART_DEPTH] = CLASSES_AND_ALL, [PART_TIMELINE] = 1, [PART_HEAT] = 1,
			       [PART_THREADS] = 1, [PART_CARRY] = 1 };

	if (part < 0 || part > PART_CARRY || which < 0 || which >= limits[part])
		return -EINVAL;
	switch ((enum metrics_part)part) {
	case PART_SUMS:
		return read_sums(metrics, which, values, capacity);
	case PART_HISTOGRAM:
		return histogram_read(&metrics->histograms[which], values, capacity);
	case PART_BURSTS:
		return read_bursts(&metrics->bursts[which], values, capacity);
	case PART_PLANNED:
		return read_bursts(&metrics->planned[which], values, capacity);
	case PART_SECONDS:
		return give(values, capacity, metrics->seconds[which].rows, metrics->seconds[which].numbers.count *
			    sizeof(*metrics->seconds[which].rows) / sizeof(*values));
	case PART_DEPTH:
		return read_depth(metrics, which, values, capacity);
	case PART_TIMELINE:
		return read_timeline(&metrics->timeline, values, capacity);
	case PART_HEAT:
		return read_heat(&metrics->heat, values, capacity);
	case PART_THREADS:
		return give(values, capacity, metrics->threads,
			    metrics->tids.count * sizeof(*metrics->threads) / sizeof(*values));
	case PART_CARRY:
		return read_carry(metrics, values, capacity);
	}
	return -EINVAL;
}
