/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "host_effect.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "binning.h"

#define BIN_BITS 10u
#define LONGEST_NS ((1ll << 42) - 1) /* more than an hour */
#define BINS ((42u - BIN_BITS + 1) << BIN_BITS)

/* Added to both latencies before their ratio, so that the clock's resolution does not decide. */
#define RATIO_FLOOR_NS 500.0f

struct queue {
	int64_t channel_free_ns[MAX_CHANNELS]; /* a heap, the earliest first */
	int64_t bus_free_ns[2];
};

static void queue_reset(struct queue *queue, const struct queue_model *model)
{
	for (int i = 0; i < (int)model->channels; i++)
		queue->channel_free_ns[i] = INT64_MIN / 2;
	queue->bus_free_ns[0] = queue->bus_free_ns[1] = INT64_MIN / 2;
}

/* Replaces the earliest time of the heap by a later one. */
static void occupy(int64_t *heap, unsigned count, int64_t until_ns)
{
	unsigned at = 0;

	for (;;) {
		unsigned child = 2 * at + 1;

		if (child >= count)
			break;
		if (child + 1 < count && heap[child + 1] < heap[child])
			child++;
		if (heap[child] >= until_ns)
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = until_ns;
}

static int64_t queue_complete(struct queue *queue, const struct queue_model *model, int64_t arrive_ns, int op,
			      int64_t length_bytes)
{
	int64_t *channels = queue->channel_free_ns, done_ns = arrive_ns > channels[0] ? arrive_ns : channels[0];
	int64_t *bus;

	done_ns += (int64_t)model->latency_ns[op];
	occupy(channels, (unsigned)model->channels, done_ns);
	if (op > OP_WRITE)
		return done_ns;
	bus = &queue->bus_free_ns[op];
	if (*bus > done_ns)
		done_ns = *bus;
	return *bus = done_ns + (int64_t)(model->ns_per_byte[op] * (double)length_bytes);
}

/* ---- fit ---- */

static double misfit(const struct queue_model *model, const struct arrivals *arrivals, const int64_t *latency_ns,
		     int64_t chunk_rows)
{
	struct queue queue;
	double sum = 0;

	for (int64_t i = 0; i < arrivals->rows; i++) {
		int64_t arrive_ns = arrivals->arrive_ns[i], modeled_ns;

		if (i % chunk_rows == 0)
			queue_reset(&queue, model);
		modeled_ns = queue_complete(&queue, model, arrive_ns, arrivals->op[i], arrivals->length_bytes[i]) -
			     arrive_ns;
		sum += fabsf(log2f(((float)modeled_ns + RATIO_FLOOR_NS) / ((float)latency_ns[i] + RATIO_FLOOR_NS)));
	}
	return sum / (double)arrivals->rows;
}

#define SEARCHED 5

static double *searched(struct queue_model *model, int which)
{
	switch (which) {
	case 0:
	case 1:
		return &model->latency_ns[which];
	case 2:
	case 3:
		return &model->ns_per_byte[which - 2];
	default:
		return &model->channels;
	}
}

/* Returns false for a model that is the same or impossible. */
static bool changed(struct queue_model *model, int which, double factor)
{
	double *value = searched(model, which), before = *value;

	*value *= factor;
	if (which == 4)
		*value = factor > 1 ? ceil(*value) : floor(*value);
	return *value != before && *value >= (which == 4 ? 1 : 1e-4) && *value <= (which == 4 ? MAX_CHANNELS : 1e12);
}

static double search(struct queue_model *model, double best, double factor, const struct arrivals *arrivals,
		     const int64_t *latency_ns, int64_t chunk_rows)
{
	bool better = true;

	for (int round = 0; round < 6 && better; round++) {
		better = false;
		for (int which = 0; which < 2 * SEARCHED; which++) {
			struct queue_model other = *model;
			double found;

			if (!changed(&other, which / 2, which % 2 ? 1 / factor : factor))
				continue;
			found = misfit(&other, arrivals, latency_ns, chunk_rows);
			if (found >= best)
				continue;
			best = found;
			*model = other;
			better = true;
		}
	}
	return best;
}

double host_effect_fit(struct queue_model *model, const struct arrivals *arrivals, const int64_t *latency_ns,
		       int64_t chunk_rows)
{
	static const double channels[] = { 1, 8, 64 }, steps[] = { 1.5, 1.2, 1.1, 1.04, 1.015 };
	struct queue_model first = *model;
	double best = INFINITY;

	for (unsigned i = 0; i < sizeof(channels) / sizeof(*channels); i++) {
		struct queue_model other = first;
		double found;

		other.channels = channels[i];
		found = misfit(&other, arrivals, latency_ns, chunk_rows);
		found = search(&other, found, 4, arrivals, latency_ns, chunk_rows);
		found = search(&other, found, 2, arrivals, latency_ns, chunk_rows);
		if (found < best) {
			best = found;
			*model = other;
		}
	}
	for (unsigned i = 0; i < sizeof(steps) / sizeof(*steps); i++)
		best = search(model, best, steps[i], arrivals, latency_ns, chunk_rows);
	return best;
}

/* ---- metrics ---- */

/* The union of intervals that come nearly in the order of their starts. */
struct interval_union {
	int64_t length_ns;
	int64_t before_ns; /* end of the interval before the last one */
	int64_t start_ns, end_ns; /* of the last one */
};

struct direction {
	int64_t count, sum_ns, response_count;
	struct interval_union outstanding;
	int64_t latency[BINS];
	int64_t response[BINS];
};

struct span {
	int64_t first_ns, last_ns;
};

struct variant {
	struct queue queue;
	double channels; /* of the queue; 0 before the first I/O */
	struct direction of[2];
	struct span all, workload;
};

struct variant *host_effect_new(void)
{
	struct variant *variant = calloc(1, sizeof(*variant));

	if (!variant)
		return NULL;
	for (int direction = 0; direction < 2; direction++)
		variant->of[direction].outstanding =
			(struct interval_union){ 0, INT64_MIN / 2, INT64_MIN / 2, INT64_MIN / 2 };
	variant->all = variant->workload = (struct span){ INT64_MAX, INT64_MIN };
	return variant;
}

void host_effect_free(struct variant *variant)
{
	free(variant);
}

static void add_interval(struct interval_union *sum, int64_t start_ns, int64_t end_ns)
{
	if (start_ns > sum->end_ns) {
		sum->before_ns = sum->end_ns;
		sum->start_ns = sum->end_ns = start_ns;
	} else if (start_ns < sum->start_ns) {
		int64_t from_ns = start_ns > sum->before_ns ? start_ns : sum->before_ns;

		sum->length_ns += sum->start_ns - from_ns;
		sum->start_ns = from_ns;
	}
	if (end_ns > sum->end_ns) {
		sum->length_ns += end_ns - sum->end_ns;
		sum->end_ns = end_ns;
	}
}

static void add_span(struct span *span, int64_t first_ns, int64_t last_ns)
{
	if (first_ns < span->first_ns)
		span->first_ns = first_ns;
	if (last_ns > span->last_ns)
		span->last_ns = last_ns;
}

static uint32_t bin_of(int64_t value_ns)
{
	return log_linear_bin((uint64_t)(value_ns < 0 ? 0 : value_ns > LONGEST_NS ? LONGEST_NS : value_ns), BIN_BITS);
}

void host_effect_add(struct variant *variant, const struct queue_model *model, const struct arrivals *arrivals,
		     const int64_t *complete_ns, const int64_t *waited_ns, const int64_t *late_ns,
		     const uint8_t *workload)
{
	if (variant->channels != model->channels)
		queue_reset(&variant->queue, model);
	variant->channels = model->channels;
	for (int64_t i = 0; i < arrivals->rows; i++) {
		int64_t arrive_ns = arrivals->arrive_ns[i];
		int64_t done_ns = complete_ns ? complete_ns[i] : queue_complete(&variant->queue, model, arrive_ns,
										 arrivals->op[i],
										 arrivals->length_bytes[i]);
		struct direction *direction;

		add_span(&variant->all, arrive_ns, done_ns);
		if (workload[i])
			add_span(&variant->workload, arrive_ns, done_ns);
		if (arrivals->op[i] > OP_WRITE)
			continue;
		direction = &variant->of[arrivals->op[i]];
		direction->count++;
		direction->sum_ns += done_ns - arrive_ns;
		direction->latency[bin_of(done_ns - arrive_ns)]++;
		add_interval(&direction->outstanding, arrive_ns - waited_ns[i], done_ns);
		if (late_ns[i] < 0)
			continue;
		direction->response_count++;
		direction->response[bin_of(done_ns - arrive_ns + late_ns[i])]++;
	}
}

int64_t host_effect_value(const struct variant *variant, int direction, int value)
{
	const struct direction *of = &variant->of[direction];

	switch (value) {
	case VALUE_COUNT:
		return of->count;
	case VALUE_SUM:
		return of->sum_ns;
	case VALUE_WAIT:
		return of->outstanding.length_ns;
	default:
		return of->response_count;
	}
}

int64_t host_effect_percentile(const struct variant *variant, int direction, int response, int64_t rank)
{
	const struct direction *of = &variant->of[direction];
	const int64_t *counts = response ? of->response : of->latency;
	int64_t seen = 0;

	for (uint32_t bin = 0; bin < BINS; bin++) {
		uint32_t octave = bin >> BIN_BITS;

		seen += counts[bin];
		if (seen < rank)
			continue;
		octave = octave ? octave - 1 : 0;
		return (int64_t)(bin - (octave << BIN_BITS)) << octave;
	}
	return 0;
}

int64_t host_effect_load_time(const struct variant *variant)
{
	const struct span *span = variant->workload.last_ns == INT64_MIN ? &variant->all : &variant->workload;

	return span->last_ns == INT64_MIN ? 0 : span->last_ns - span->first_ns;
}
