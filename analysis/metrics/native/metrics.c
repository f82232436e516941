/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "metrics.h"

#include <errno.h>
#include <stdlib.h>

#include "accumulator.h"
#include "codes.h"

#define NS_PER_S 1000000000
#define LENGTH_LIMIT_BYTES (1ll << 50)
#define OFFSET_LIMIT_BYTES (1ll << 62)

static int64_t max_of(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static inline int class_of(int8_t op)
{
	return op == OP_READ ? CLASS_READ : op_is_write(op) ? CLASS_WRITE : CLASS_OTHER;
}

static inline int record(struct metrics *metrics, bool exact, int distribution, int64_t value)
{
	if (!exact)
		return histogram_add(&metrics->histograms[distribution], value);
	metrics->taken[distribution][metrics->taken_count[distribution]++] = value;
	return 0;
}

/* Returns whether the sum overflows. */
static inline bool add_up(int64_t *sum, int64_t value)
{
	return __builtin_add_overflow(*sum, value, sum);
}

static inline void span_add(struct span *span, int64_t submit_ns, int64_t complete_ns)
{
	int64_t from_ns = max_of(submit_ns, span->reach_ns);

	if (span->first_ns == INT64_MAX)
		span->first_ns = submit_ns;
	if (complete_ns > from_ns)
		span->busy_ns += complete_ns - from_ns;
	span->reach_ns = max_of(span->reach_ns, complete_ns);
}

static struct second *seconds_grow(struct seconds *seconds, size_t index, int64_t number)
{
	if (index >= seconds->capacity && array_grow(&seconds->rows, &seconds->capacity, sizeof(*seconds->rows)))
		return NULL;
	seconds->rows[index] = (struct second){ .number = number };
	return &seconds->rows[index];
}

static inline int seconds_add(struct seconds *seconds, int64_t since_ns)
{
	size_t known = seconds->numbers.count;
	int64_t number = since_ns / NS_PER_S, index = number_map_get(&seconds->numbers, number);
	struct second *second = index < 0 ? NULL :
		(size_t)index < known ? &seconds->rows[index] : seconds_grow(seconds, (size_t)index, number);

	if (!second)
		return -ENOMEM;
	second->ops++;
	return 0;
}

static struct thread *thread_grow(struct metrics *metrics, size_t index, int64_t key)
{
	if (index >= metrics->thread_capacity &&
	    array_grow(&metrics->threads, &metrics->thread_capacity, sizeof(*metrics->threads)))
		return NULL;
	metrics->threads[index] = (struct thread){ .key = key, .of = { { .first_offset = -1 }, { .first_offset = -1 } } };
	return &metrics->threads[index];
}

static inline int thread_add(struct metrics *metrics, int kind, int32_t tid, int64_t latency_ns, int64_t offset,
			     int64_t bytes, int64_t device)
{
	size_t known = metrics->thread_keys.count;
	int64_t key = (int64_t)tid * 65536 + (uint16_t)device, index = number_map_get(&metrics->thread_keys, key);
	struct thread *thread = index < 0 ? NULL :
		(size_t)index < known ? &metrics->threads[index] : thread_grow(metrics, (size_t)index, key);
	struct stream *stream;

	if (!thread)
		return -ENOMEM;
	stream = &thread->of[kind];
	if (stream->first_offset < 0) {
		stream->first_offset = offset;
		stream->first_bytes = bytes;
	} else if (stream->end_offset == offset) {
		stream->sequential_ops++;
		stream->sequential_bytes += bytes;
	}
	stream->ops++;
	stream->bytes += bytes;
	stream->service_ns += latency_ns;
	stream->end_offset = offset + bytes;
	return 0;
}

/* Idle time of the trace before an I/O that the plan of the run left out. */
static inline int64_t idle_removed_ns(const struct metrics_columns *columns, int64_t i)
{
	return columns->idle_removed_ns ? columns->idle_removed_ns[i] : 0;
}

/* When the wait for an I/O begins: at its deadline if the queue was full then. */
static inline int64_t wait_begin(const struct metrics_columns *columns, int64_t i)
{
	int64_t submit_ns = columns->submit_ns[i], due_ns = columns->due_ns ? columns->due_ns[i] : -1;

	if (due_ns < 0 || due_ns >= submit_ns || !columns->flags || !(columns->flags[i] & FLAG_QUEUE_FULL))
		return submit_ns;
	return max_of(due_ns, submit_ns - QUEUED_LIMIT_NS);
}

/* A row of a run whose deadline is known. */
static inline int add_due(struct metrics *metrics, bool exact, const struct metrics_columns *columns, int64_t i, int kind,
			  int64_t complete_ns)
{
	int64_t due_ns = columns->due_ns[i], submit_ns = columns->submit_ns[i];
	bool device = columns->flags && columns->flags[i] & FLAG_QUEUE_FULL;
	int err;

	if (due_ns < 0)
		return 0;
	if (due_ns >= TIME_LIMIT_NS || add_up(&metrics->totals.apart_ns, llabs(submit_ns - due_ns) + complete_ns - submit_ns))
		return -ERANGE;
	err = record(metrics, exact, device ? DISTRIBUTION_LATENESS_DEVICE : DISTRIBUTION_LATENESS_HOST,
		     submit_ns - due_ns);
	err |= record(metrics, exact, DISTRIBUTION_RESPONSE + kind, complete_ns - due_ns);
	err |= bursts_add(&metrics->planned[kind], due_ns, due_ns, complete_ns, columns->length_bytes[i],
			  columns->burst ? columns->burst[i] : -1, idle_removed_ns(columns, i));
	if (kind == CLASS_WRITE)
		err |= keep_up_add(&metrics->keep_up, due_ns, complete_ns, columns->length_bytes[i]);
	return err ? -ENOMEM : 0;
}

/* A row with offset and thread. */
static inline int add_offset(struct metrics *metrics, const struct metrics_columns *columns, int64_t i, int kind)
{
	int64_t offset = columns->offset_bytes[i], bytes = columns->length_bytes[i];
	int16_t device = columns->device ? columns->device[i] : 0;

	if (offset < 0 || offset >= OFFSET_LIMIT_BYTES)
		return -ERANGE;
	if (device >= 0 && device < HEAT_DEVICES) {
		struct heat **heat = &metrics->heats[device];

		if (!*heat)
			*heat = calloc(1, sizeof(**heat));
		if (!*heat)
			return -ENOMEM;
		heat_add(*heat, kind, columns->submit_ns[i] - metrics->spans[CLASS_ALL].first_ns, offset, bytes);
	}
	if (kind == CLASS_WRITE)
		alignment_add(&metrics->alignment, device, offset, bytes);
	return thread_add(metrics, kind, columns->tid ? columns->tid[i] : -1, columns->latency_ns[i], offset, bytes, device);
}

static inline int add_seen(struct metrics *metrics, bool exact, const struct metrics_columns *columns, int64_t i, int kind)
{
	int64_t submit_ns = columns->submit_ns[i], latency_ns = columns->latency_ns[i];
	int64_t complete_ns = submit_ns + latency_ns, bytes = columns->length_bytes[i], since_ns;
	struct span *span = &metrics->spans[kind], *all = &metrics->spans[CLASS_ALL];
	bool is_first = all->first_ns == INT64_MAX;
	struct sums *sums = &metrics->sums[kind];
	int err;

	if (idle_removed_ns(columns, i) < 0 || idle_removed_ns(columns, i) >= TIME_LIMIT_NS ||
	    add_up(&metrics->totals.service_ns, latency_ns))
		return -ERANGE;
	if (!is_first) {
		record(metrics, exact, DISTRIBUTION_SUBMIT_GAP, submit_ns - metrics->last_seen_submit_ns);
		if (submit_ns > all->reach_ns)
			record(metrics, exact, DISTRIBUTION_IDLE_GAP, submit_ns - all->reach_ns);
		if (submit_ns - all->reach_ns > metrics->bursts[kind].gap_ns)
			metrics->idle_ns += submit_ns - all->reach_ns;
	}
	metrics->last_seen_submit_ns = submit_ns;
	err = depths_submit(&metrics->depths, submit_ns, complete_ns, kind, (span->first_ns == INT64_MAX) | is_first << 1);
	if (err)
		return err;
	span_add(span, submit_ns, complete_ns);
	span_add(all, submit_ns, complete_ns);
	err = uncovered_fill(&metrics->uncovered[kind], wait_begin(columns, i), complete_ns, submit_ns,
			     columns->due_ns && columns->flags);
	if (err)
		return err;

	sums->ops++;
	sums->bytes += bytes;
	sums->service_ns += latency_ns;
	sums->error_ops += columns->status && columns->status[i];
	record(metrics, exact, DISTRIBUTION_LATENCY + kind, latency_ns);
	record(metrics, exact, DISTRIBUTION_SIZE + kind, bytes);
	if (columns->queue_ns && columns->queue_ns[i] >= 0) {
		if (columns->queue_ns[i] >= TIME_LIMIT_NS || add_up(&metrics->totals.queue_ns, columns->queue_ns[i]))
			return -ERANGE;
		record(metrics, exact, DISTRIBUTION_QUEUE + kind, columns->queue_ns[i]);
	}

	since_ns = complete_ns - all->first_ns;
	err = seconds_add(&metrics->seconds[kind], since_ns);
	if (err)
		return err;
	timeline_add(&metrics->timeline, kind, since_ns, bytes);
	if (kind < POINT_CLASSES)
		latency_points_add(&metrics->latency_points, kind, submit_ns - all->first_ns, latency_ns);
	err = bursts_add(&metrics->bursts[kind], submit_ns, complete_ns, complete_ns, bytes,
			 columns->burst ? columns->burst[i] : -1, idle_removed_ns(columns, i));
	if (!err && columns->due_ns)
		err = add_due(metrics, exact, columns, i, kind, complete_ns);
	if (!err && columns->offset_bytes && kind < DATA_CLASSES)
		err = add_offset(metrics, columns, i, kind);
	return err;
}

/*
 * I/O beside the workload counts in the rates over time only, from the first I/O of the workload on: all other metrics are
 * of what the workload waited for.
 */
static inline void add_background(struct metrics *metrics, const struct metrics_columns *columns, int64_t i, int kind)
{
	int64_t first_ns = metrics->spans[CLASS_ALL].first_ns, complete_ns = columns->submit_ns[i] + columns->latency_ns[i];

	if (columns->latency_ns[i] >= 0 && first_ns != INT64_MAX && complete_ns >= first_ns)
		timeline_add(&metrics->timeline, kind, complete_ns - first_ns, columns->length_bytes[i]);
}

/* Compiled twice, for both values of `exact`. */
static inline __attribute__((always_inline)) int feed_rows(struct metrics *metrics, bool exact,
							   const struct metrics_columns *columns)
{
	for (int64_t i = 0; i < columns->rows; i++) {
		int64_t submit_ns = columns->submit_ns[i], bytes = columns->length_bytes[i];
		int kind = class_of(columns->op[i]), err;

		if (submit_ns < metrics->last_submit_ns)
			return -EILSEQ;
		if (submit_ns < 0 || submit_ns >= TIME_LIMIT_NS || columns->latency_ns[i] >= TIME_LIMIT_NS - submit_ns ||
		    (uint64_t)bytes >= LENGTH_LIMIT_BYTES || add_up(&metrics->totals.bytes, bytes))
			return -ERANGE;
		metrics->last_submit_ns = submit_ns;
		if (columns->flags && columns->flags[i] & FLAG_ROLE_BACKGROUND) {
			add_background(metrics, columns, i, kind);
			continue;
		}
		if (columns->latency_ns[i] < 0) {
			metrics->sums[kind].unseen_ops++;
			metrics->sums[kind].unseen_bytes += bytes;
			continue;
		}
		err = add_seen(metrics, exact, columns, i, kind);
		if (err)
			return err;
	}
	return 0;
}

static int make_room(struct metrics *metrics, size_t rows)
{
	for (int i = 0; i < DISTRIBUTIONS; i++) {
		metrics->taken_count[i] = 0;
		if (rows <= metrics->taken_capacity)
			continue;
		free(metrics->taken[i]);
		metrics->taken[i] = malloc(rows * sizeof(**metrics->taken));
		if (!metrics->taken[i])
			return -ENOMEM;
	}
	metrics->taken_capacity = rows > metrics->taken_capacity ? rows : metrics->taken_capacity;
	return 0;
}

int metrics_feed(struct metrics *metrics, const struct metrics_columns *columns)
{
	int err;

	if (!metrics->exact)
		return feed_rows(metrics, false, columns);
	err = make_room(metrics, (size_t)columns->rows);
	return err ? err : feed_rows(metrics, true, columns);
}

int64_t metrics_taken(const struct metrics *metrics, int distribution, const int64_t **values)
{
	if (!metrics->exact || distribution < 0 || distribution >= DISTRIBUTIONS)
		return -EINVAL;
	*values = metrics->taken[distribution];
	return (int64_t)metrics->taken_count[distribution];
}

/* Times since the origin become indices, so none may be negative. */
static bool is_valid(const struct boundary_state *state)
{
	if (state->last_seen_submit_ns > state->last_submit_ns)
		return false;
	for (int kind = 0; kind < CLASSES_AND_ALL; kind++) {
		bool none = state->first_ns[kind] == INT64_MAX;

		if (none != (state->reach_ns[kind] == INT64_MIN))
			return false;
		if (!none && (state->first_ns[kind] > state->last_seen_submit_ns ||
			      state->first_ns[kind] < state->first_ns[CLASS_ALL] ||
			      state->reach_ns[kind] < state->first_ns[kind]))
			return false;
	}
	return true;
}

static int restore_state(struct metrics *metrics, const int64_t *numbers, size_t length)
{
	const struct boundary_state *state = (const void *)numbers;
	size_t head = sizeof(*state) / sizeof(*numbers);

	if (length < head || state->outstanding < 0 || !is_valid(state))
		return -EINVAL;
	/* Subtracts one count after the other, so that no sum overflows. */
	length -= head;
	for (int kind = -1; kind < CLASSES; kind++) {
		int64_t count = kind < 0 ? state->outstanding : state->uncovered[kind];

		if (count < 0 || (size_t)count > length / 2)
			return -EINVAL;
		length -= 2 * (size_t)count;
	}
	if (length)
		return -EINVAL;
	for (int kind = 0; kind < CLASSES; kind++) {
		const int64_t *pairs = numbers + head + 2 * state->outstanding;
		int err;

		for (int before = 0; before < kind; before++)
			pairs += 2 * state->uncovered[before];
		err = uncovered_restore(&metrics->uncovered[kind], (const void *)pairs, (size_t)state->uncovered[kind]);
		if (err)
			return err;
	}
	metrics->last_submit_ns = state->last_submit_ns;
	metrics->last_seen_submit_ns = state->last_seen_submit_ns;
	for (int64_t i = 0; i < state->outstanding; i++) {
		const int64_t *pair = numbers + head + 2 * i;
		int kind = (int)pair[1];

		if (pair[1] < 0 || pair[1] >= CLASSES)
			return -EINVAL;
		if (depths_push(&metrics->depths, pair[0], kind))
			return -ENOMEM;
		for (int j = 0; j < 2; j++) {
			struct depth *depth = &metrics->depths.of[j ? CLASS_ALL : kind];

			depth->outstanding++;
			if (depth_reserve(depth))
				return -ENOMEM;
		}
	}
	for (int kind = 0; kind < CLASSES_AND_ALL; kind++) {
		struct depth *depth = &metrics->depths.of[kind];

		metrics->spans[kind].first_ns = state->first_ns[kind];
		metrics->spans[kind].reach_ns = state->reach_ns[kind];
		depth->now_ns = depth->outstanding ? state->last_seen_submit_ns : state->reach_ns[kind];
	}
	return 0;
}

struct metrics *metrics_new(int64_t gap_ns, int exact, const int64_t *state, size_t state_length)
{
	struct metrics *metrics = calloc(1, sizeof(*metrics));
	int err = 0;

	if (!metrics)
		return NULL;
	metrics->exact = exact;
	metrics->last_submit_ns = metrics->last_seen_submit_ns = INT64_MIN;
	for (int kind = 0; kind < CLASSES_AND_ALL; kind++)
		metrics->spans[kind] = (struct span){ INT64_MAX, INT64_MIN, 0 };
	for (int kind = 0; kind < CLASSES; kind++) {
		metrics->bursts[kind].gap_ns = metrics->planned[kind].gap_ns = gap_ns;
		metrics->bursts[kind].reach_ns = metrics->planned[kind].reach_ns = INT64_MIN;
	}
	alignment_init(&metrics->alignment);
	metrics->keep_up.last_due_ns = metrics->keep_up.reach_ns = INT64_MIN;
	for (int kind = 0; kind < CLASSES && !err; kind++)
		err = uncovered_init(&metrics->uncovered[kind]);
	if (!err)
		err = latency_points_init(&metrics->latency_points);
	for (int i = 0; i < DISTRIBUTIONS && !exact && !err; i++)
		err = histogram_init(&metrics->histograms[i]);
	if (!err && state)
		err = restore_state(metrics, state, state_length);
	if (!err)
		return metrics;
	metrics_free(metrics);
	return NULL;
}

void metrics_free(struct metrics *metrics)
{
	if (!metrics)
		return;
	for (int kind = 0; kind < CLASSES; kind++) {
		bursts_deinit(&metrics->bursts[kind]);
		bursts_deinit(&metrics->planned[kind]);
		uncovered_deinit(&metrics->uncovered[kind]);
		number_map_deinit(&metrics->seconds[kind].numbers);
		free(metrics->seconds[kind].rows);
	}
	for (int i = 0; i < DISTRIBUTIONS; i++) {
		histogram_deinit(&metrics->histograms[i]);
		free(metrics->taken[i]);
	}
	for (int device = 0; device < HEAT_DEVICES; device++)
		free(metrics->heats[device]);
	depths_deinit(&metrics->depths);
	latency_points_deinit(&metrics->latency_points);
	keep_up_deinit(&metrics->keep_up);
	number_map_deinit(&metrics->thread_keys);
	free(metrics->threads);
	free(metrics);
}
