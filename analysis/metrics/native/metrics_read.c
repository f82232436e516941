/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <errno.h>
#include <string.h>

#include "accumulator.h"

static int64_t copy(int64_t *values, size_t capacity, const void *from, size_t length)
{
	if (length && length <= capacity)
		memcpy(values, from, length * sizeof(*values));
	return (int64_t)length;
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
			      sums->service_ns, span->busy_ns, makespan_of(span),
			      kind < CLASSES ? metrics->uncovered[kind].covered_ns : metrics->idle_ns };

	return copy(values, capacity, numbers, sizeof(numbers) / sizeof(*numbers));
}

static int64_t read_bursts(const struct bursts *bursts, int64_t *values, size_t capacity)
{
	size_t length = 1 + bursts->count * sizeof(*bursts->rows) / sizeof(*values);

	if (length > capacity)
		return (int64_t)length;
	values[0] = bursts->reach_ns;
	copy(values + 1, capacity - 1, bursts->rows, length - 1);
	return (int64_t)length;
}

int64_t metrics_bursts(const struct metrics *metrics, int part, int which, int64_t *reach_ns, const int64_t **rows)
{
	const struct bursts *bursts;

	if ((part != PART_BURSTS && part != PART_PLANNED) || which < 0 || which >= CLASSES)
		return -EINVAL;
	bursts = part == PART_BURSTS ? &metrics->bursts[which] : &metrics->planned[which];
	*reach_ns = bursts->reach_ns;
	*rows = bursts->count ? &bursts->rows->opened_ns : NULL;
	return (int64_t)bursts->count;
}

/* The depth has not changed up to the last submit. */
static int64_t read_depth(struct metrics *metrics, int kind, int64_t *values, size_t capacity)
{
	struct depth *depth = &metrics->depths.of[kind];
	size_t used = depth->capacity;

	if (depth->outstanding)
		depth_pass(depth, metrics->last_seen_submit_ns);
	while (used && !depth->ns[used - 1])
		used--;
	return copy(values, capacity, depth->ns, used);
}

static int64_t read_timeline(const struct timeline *timeline, int64_t *values, size_t capacity)
{
	const size_t bins = DATA_CLASSES * TIMELINE_BINS;

	if (capacity < 1 + 2 * bins)
		return (int64_t)(1 + 2 * bins);
	values[0] = (int64_t)FIRST_WIDTH_NS << timeline->doublings;
	memcpy(values + 1, timeline->bytes, bins * sizeof(*values));
	memcpy(values + 1 + bins, timeline->ops, bins * sizeof(*values));
	return (int64_t)(1 + 2 * bins);
}

static int64_t read_heat(const struct heat *heat, int64_t *values, size_t capacity)
{
	const size_t cells = DATA_CLASSES * HEAT_ROWS * HEAT_COLUMNS;

	if (!heat)
		return 0;
	if (capacity < 2 + cells)
		return (int64_t)(2 + cells);
	values[0] = (int64_t)FIRST_WIDTH_NS << heat->doublings;
	values[1] = 1ll << (FIRST_HEIGHT_BITS + heat->height_doublings);
	memcpy(values + 2, heat->cells, cells * sizeof(*values));
	return (int64_t)(2 + cells);
}

static int64_t read_boundary_state(struct metrics *metrics, int64_t *values, size_t capacity)
{
	const struct depths *depths = &metrics->depths;
	struct boundary_state state = { .last_submit_ns = metrics->last_submit_ns,
				       .last_seen_submit_ns = metrics->last_seen_submit_ns,
				       .outstanding = (int64_t)(depths->tail - depths->head + depths->heap_count) };
	size_t head = sizeof(state) / sizeof(*values), near = 2 * (depths->tail - depths->head);
	size_t length = head + 2 * (size_t)state.outstanding;

	for (int kind = 0; kind < CLASSES_AND_ALL; kind++) {
		state.first_ns[kind] = metrics->spans[kind].first_ns;
		state.reach_ns[kind] = metrics->spans[kind].reach_ns;
	}
	for (int kind = 0; kind < CLASSES; kind++) {
		struct uncovered *uncovered = &metrics->uncovered[kind];

		/* What is stored must not depend on when it was dropped. */
		if (metrics->last_seen_submit_ns != INT64_MIN)
			uncovered_prune(uncovered, metrics->last_seen_submit_ns);
		state.uncovered[kind] = (int64_t)(uncovered->count - uncovered->first);
		length += 2 * (size_t)state.uncovered[kind];
	}
	if (length > capacity)
		return (int64_t)length;
	memcpy(values, &state, sizeof(state));
	copy(values + head, capacity - head, depths->near + depths->head, near);
	copy(values + head + near, capacity - head - near, depths->heap, 2 * depths->heap_count);
	values += head + near + 2 * depths->heap_count;
	for (int kind = 0; kind < CLASSES; kind++) {
		const struct uncovered *uncovered = &metrics->uncovered[kind];

		memcpy(values, uncovered->rows + uncovered->first,
		       2 * (size_t)state.uncovered[kind] * sizeof(*values));
		values += 2 * state.uncovered[kind];
	}
	return (int64_t)length;
}

static int64_t read_keep_up(const struct keep_up *keep_up, int64_t *values, size_t capacity)
{
	int64_t head[] = { keep_up->last_due_ns, keep_up->reach_ns, keep_up->bytes, keep_up->by_due_bytes };
	const size_t head_length = sizeof(head) / sizeof(*head);
	size_t length = head_length + 2 * keep_up->numbers.count;

	if (length > capacity)
		return (int64_t)length;
	copy(values, capacity, head, head_length);
	copy(values + head_length, capacity - head_length, keep_up->rows, length - head_length);
	return (int64_t)length;
}

int64_t metrics_read(struct metrics *metrics, int part, int which, int64_t *values, size_t capacity)
{
	const int limits[] = { [PART_SUMS] = CLASSES_AND_ALL, [PART_HISTOGRAM] = metrics->exact ? 0 : DISTRIBUTIONS,
			       [PART_BURSTS] = CLASSES, [PART_PLANNED] = CLASSES, [PART_SECONDS] = CLASSES,
			       [PART_DEPTH] = CLASSES_AND_ALL, [PART_TIMELINE] = 1, [PART_HEAT] = HEAT_DEVICES,
			       [PART_THREADS] = 1, [PART_BOUNDARY_STATE] = 1, [PART_KEEP_UP] = 1,
			       [PART_LATENCY_POINTS] = 1, [PART_ALIGNMENT] = 1 };

	if (part < 0 || part > PART_ALIGNMENT || which < 0 || which >= limits[part])
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
		return copy(values, capacity, metrics->seconds[which].rows, metrics->seconds[which].numbers.count *
			    sizeof(*metrics->seconds[which].rows) / sizeof(*values));
	case PART_DEPTH:
		return read_depth(metrics, which, values, capacity);
	case PART_TIMELINE:
		return read_timeline(&metrics->timeline, values, capacity);
	case PART_HEAT:
		return read_heat(metrics->heats[which], values, capacity);
	case PART_THREADS:
		return copy(values, capacity, metrics->threads,
			    metrics->thread_keys.count * sizeof(*metrics->threads) / sizeof(*values));
	case PART_BOUNDARY_STATE:
		return read_boundary_state(metrics, values, capacity);
	case PART_KEEP_UP:
		return read_keep_up(&metrics->keep_up, values, capacity);
	case PART_LATENCY_POINTS:
		return latency_points_read(&metrics->latency_points, values, capacity);
	case PART_ALIGNMENT:
		return copy(values, capacity, &metrics->alignment, sizeof(metrics->alignment) / sizeof(*values));
	}
	return -EINVAL;
}
