/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "accumulator.h"
#include "codes.h"

#define SECOND_NS 1000000000
#define LIMIT_NS (1ll << 61)
#define LATENCY_LIMIT_NS (1ll << 60)
#define LENGTH_LIMIT_BYTES (1ll << 50)
#define OFFSET_LIMIT_BYTES (1ll << 62)

static int64_t max_of(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static inline int class_of(int8_t op)
{
	return op == OP_READ ? CLASS_READ : op == OP_WRITE ? CLASS_WRITE : CLASS_OTHER;
}

static inline int record(struct metrics *metrics, bool exact, int distribution, int64_t value)
{
	if (!exact)
		return histogram_add(&metrics->histograms[distribution], value);
	metrics->taken[distribution][metrics->taken_count[distribution]++] = value;
	return 0;
}

/* Whether a sum goes beyond 64 bits. */
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
	if (index >= seconds->capacity) {
		size_t capacity = seconds->capacity ? seconds->capacity * 2 : 64;
		struct second *rows = realloc(seconds->rows, capacity * sizeof(*rows));

		if (!rows)
			return NULL;
		seconds->rows = rows;
		seconds->capacity = capacity;
	}
	seconds->rows[index] = (struct second){ .number = number };
	return &seconds->rows[index];
}

static inline int seconds_add(struct seconds *seconds, int64_t since_ns)
{
	size_t known = seconds->numbers.count;
	int64_t number = since_ns / SECOND_NS, index = number_map_get(&seconds->numbers, number);
	struct second *second = index < 0 ? NULL :
		(size_t)index < known ? &seconds->rows[index] : seconds_grow(seconds, index, number);

	if (!second)
		return -ENOMEM;
	second->ops++;
	return 0;
}

static struct thread *thread_grow(struct metrics *metrics, size_t index, int32_t tid)
{
	if (index >= metrics->thread_capacity) {
		size_t capacity = metrics->thread_capacity ? metrics->thread_capacity * 2 : 64;
		struct thread *threads = realloc(metrics->threads, capacity * sizeof(*threads));

		if (!threads)
			return NULL;
		metrics->threads = threads;
		metrics->thread_capacity = capacity;
	}
	metrics->threads[index] = (struct thread){ .tid = tid, .of = { { .first_offset = -1 }, { .first_offset = -1 } } };
	return &metrics->threads[index];
}

static inline int thread_add(struct metrics *metrics, int kind, int32_t tid, int64_t latency_ns, int64_t offset,
			     int64_t bytes, int64_t device)
{
	size_t known = metrics->tids.count;
	int64_t index = number_map_get(&metrics->tids, tid);
	struct thread *thread = index < 0 ? NULL :
		(size_t)index < known ? &metrics->threads[index] : thread_grow(metrics, index, tid);
	struct stream *stream;

	if (!thread)
		return -ENOMEM;
	stream = &thread->of[kind];
	if (stream->first_offset < 0) {
		stream->first_offset = offset;
		stream->first_bytes = bytes;
		stream->first_device = device;
	} else if (stream->end_offset == offset && stream->end_device == device) {
		stream->sequential_ops++;
		stream->sequential_bytes += bytes;
	}
	stream->ops++;
	stream->bytes += bytes;
	stream->service_ns += latency_ns;
	stream->end_offset = offset + bytes;
	stream->end_device = device;
	return 0;
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
	if (due_ns >= LIMIT_NS || add_up(&metrics->totals.apart_ns, llabs(submit_ns - due_ns) + complete_ns - submit_ns))
		return -ERANGE;
	err = record(metrics, exact, device ? DISTRIBUTION_LATENESS_DEVICE : DISTRIBUTION_LATENESS_HOST,
		     submit_ns - due_ns);
	err |= record(metrics, exact, DISTRIBUTION_RESPONSE + kind, complete_ns - due_ns);
	err |= bursts_add(&metrics->planned[kind], due_ns, due_ns, complete_ns, columns->length_bytes[i],
			  columns->burst ? columns->burst[i] : -1);
	return err ? -ENOMEM : 0;
}

/* What only rows with a place and a thread have. */
static inline int add_place(struct metrics *metrics, const struct metrics_columns *columns, int64_t i, int kind)
{
	int64_t offset = columns->offset_bytes[i], bytes = columns->length_bytes[i];

	if (offset < 0 || offset >= OFFSET_LIMIT_BYTES)
		return -ERANGE;
	heat_add(&metrics->heat, kind, columns->submit_ns[i] - metrics->spans[CLASS_ALL].first_ns, offset, bytes);
	return thread_add(metrics, kind, columns->tid ? columns->tid[i] : -1, columns->latency_ns[i], offset, bytes,
			  columns->device ? columns->device[i] : 0);
}

static inline int add_seen(struct metrics *metrics, bool exact, const struct metrics_columns *columns, int64_t i, int kind)
{
	int64_t submit_ns = columns->submit_ns[i], latency_ns = columns->latency_ns[i];
	int64_t complete_ns = submit_ns + latency_ns, bytes = columns->length_bytes[i], since_ns;
	struct span *span = &metrics->spans[kind], *all = &metrics->spans[CLASS_ALL];
	bool is_first = all->first_ns == INT64_MAX;
	struct sums *sums = &metrics->sums[kind];
	int err;

	if (add_up(&metrics->totals.service_ns, latency_ns))
		return -ERANGE;
	if (!is_first) {
		record(metrics, exact, DISTRIBUTION_SUBMIT_GAP, submit_ns - metrics->last_seen_submit_ns);
		if (submit_ns > all->reach_ns)
			record(metrics, exact, DISTRIBUTION_IDLE_GAP, submit_ns - all->reach_ns);
	}
	metrics->last_seen_submit_ns = submit_ns;
	err = depths_submit(&metrics->depths, submit_ns, complete_ns, kind, (span->first_ns == INT64_MAX) | is_first << 1);
	if (err)
		return err;
	span_add(span, submit_ns, complete_ns);
	span_add(all, submit_ns, complete_ns);

	sums->ops++;
	sums->bytes += bytes;
	sums->service_ns += latency_ns;
	sums->error_ops += columns->status && columns->status[i];
	record(metrics, exact, DISTRIBUTION_LATENCY + kind, latency_ns);
	record(metrics, exact, DISTRIBUTION_SIZE + kind, bytes);
	if (columns->queue_ns && columns->queue_ns[i] >= 0) {
		if (columns->queue_ns[i] >= LIMIT_NS || add_up(&metrics->totals.queue_ns, columns->queue_ns[i]))
			return -ERANGE;
		record(metrics, exact, DISTRIBUTION_QUEUE + kind, columns->queue_ns[i]);
	}

	since_ns = complete_ns - all->first_ns;
	err = seconds_add(&metrics->seconds[kind], since_ns);
	if (err)
		return err;
	timeline_add(&metrics->timeline, kind, since_ns, bytes);
	err = bursts_add(&metrics->bursts[kind], submit_ns, complete_ns, complete_ns, bytes,
			 columns->burst ? columns->burst[i] : -1);
	if (!err && columns->due_ns)
		err = add_due(metrics, exact, columns, i, kind, complete_ns);
	if (!err && columns->offset_bytes && kind < DATA_CLASSES)
		err = add_place(metrics, columns, i, kind);
	return err;
}

/* Compiled twice, so that what a row is not asked for costs nothing. */
static inline __attribute__((always_inline)) int feed_rows(struct metrics *metrics, bool exact,
							   const struct metrics_columns *columns)
{
	for (int64_t i = 0; i < columns->rows; i++) {
		int64_t submit_ns = columns->submit_ns[i], bytes = columns->length_bytes[i];
		int kind = class_of(columns->op[i]), err;

		if (submit_ns < metrics->last_submit_ns)
			return -EILSEQ;
		if (submit_ns < -LATENCY_LIMIT_NS || submit_ns >= LIMIT_NS || columns->latency_ns[i] >= LATENCY_LIMIT_NS ||
		    (uint64_t)bytes >= LENGTH_LIMIT_BYTES || add_up(&metrics->totals.bytes, bytes))
			return -ERANGE;
		metrics->last_submit_ns = submit_ns;
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
	err = make_room(metrics, columns->rows);
	return err ? err : feed_rows(metrics, true, columns);
}

int64_t metrics_taken(const struct metrics *metrics, int distribution, const int64_t **values)
{
	if (!metrics->exact || distribution < 0 || distribution >= DISTRIBUTIONS)
		return -EINVAL;
	*values = metrics->taken[distribution];
	return metrics->taken_count[distribution];
}

/* Times since the origin are indices, so that none may lie before it. */
static bool is_sound(const struct metrics_carry *carry)
{
	if (carry->last_seen_submit_ns > carry->last_submit_ns)
		return false;
	for (int kind = 0; kind < CLASSES_AND_ALL; kind++) {
		bool none = carry->first_ns[kind] == INT64_MAX;

		if (none != (carry->reach_ns[kind] == INT64_MIN))
			return false;
		if (!none && (carry->first_ns[kind] > carry->last_seen_submit_ns ||
			      carry->first_ns[kind] < carry->first_ns[CLASS_ALL] ||
			      carry->reach_ns[kind] < carry->first_ns[kind]))
			return false;
	}
	return true;
}

static int take_carry(struct metrics *metrics, const int64_t *numbers, size_t length)
{
	const struct metrics_carry *carry = (const void *)numbers;
	size_t head = sizeof(*carry) / sizeof(*numbers);

	if (length < head || carry->outstanding < 0 || length - head != 2 * (size_t)carry->outstanding ||
	    !is_sound(carry))
		return -EINVAL;
	metrics->last_submit_ns = carry->last_submit_ns;
	metrics->last_seen_submit_ns = carry->last_seen_submit_ns;
	for (int64_t i = 0; i < carry->outstanding; i++) {
		const int64_t *pair = numbers + head + 2 * i;

		if (pair[1] < 0 || pair[1] >= CLASSES)
			return -EINVAL;
		if (depths_push(&metrics->depths, pair[0], pair[1]))
			return -ENOMEM;
		for (int j = 0; j < 2; j++) {
			struct depth *depth = &metrics->depths.of[j ? CLASS_ALL : pair[1]];

			if (++depth->outstanding + 1 >= depth->capacity && depth_grow(depth))
				return -ENOMEM;
		}
	}
	for (int kind = 0; kind < CLASSES_AND_ALL; kind++) {
		struct depth *depth = &metrics->depths.of[kind];

		metrics->spans[kind].first_ns = carry->first_ns[kind];
		metrics->spans[kind].reach_ns = carry->reach_ns[kind];
		depth->now_ns = depth->outstanding ? carry->last_seen_submit_ns : carry->reach_ns[kind];
	}
	return 0;
}

struct metrics *metrics_new(int64_t gap_ns, int exact, const int64_t *carry, size_t carry_length)
{
	struct metrics *metrics = calloc(1, sizeof(*metrics));
	int err = metrics ? 0 : -ENOMEM;

	if (err)
		return NULL;
	metrics->exact = exact;
	metrics->last_submit_ns = metrics->last_seen_submit_ns = INT64_MIN;
	for (int kind = 0; kind < CLASSES_AND_ALL; kind++)
		metrics->spans[kind] = (struct span){ INT64_MAX, INT64_MIN, 0 };
	for (int kind = 0; kind < CLASSES; kind++) {
		metrics->bursts[kind].gap_ns = metrics->planned[kind].gap_ns = gap_ns;
		metrics->bursts[kind].reach_ns = metrics->planned[kind].reach_ns = INT64_MIN;
	}
	for (int i = 0; i < DISTRIBUTIONS && !exact && !err; i++)
		err = histogram_init(&metrics->histograms[i]);
	if (!err && carry)
		err = take_carry(metrics, carry, carry_length);
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
		number_map_deinit(&metrics->seconds[kind].numbers);
		free(metrics->seconds[kind].rows);
	}
	for (int i = 0; i < DISTRIBUTIONS; i++) {
		histogram_deinit(&metrics->histograms[i]);
		free(metrics->taken[i]);
	}
	depths_deinit(&metrics->depths);
	number_map_deinit(&metrics->tids);
	free(metrics->threads);
	free(metrics);
}
