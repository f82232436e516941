/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The metrics of a run in several variants, to compare them: as measured, and with other times. A queue of one drive
 * gives completion times for arrivals: channels with a latency per operation, then a bus per direction.
 * Loaded by replay/fidelity/queue_metrics.py. Times are ns.
 */
#pragma once

#include <stdint.h>

#include "codes.h"

#define MAX_CHANNELS 1024

struct queue_model {
	double latency_ns[OP_COUNT];
	double ns_per_byte[2]; /* reads, writes */
	double channels;
};

/* I/Os by arrival; `rows` of each. */
struct arrivals {
	int64_t rows;
	const int64_t *arrive_ns;
	const int64_t *length_bytes;
	const int8_t *op;
};

/*
 * Changes the model until its latencies fit the measured ones: the least mean of |log2(model / measured)|, by a pattern
 * search over latencies of reads and writes, bandwidths and channels. The queue is empty at each multiple of
 * chunk_rows. Returns that mean.
 */
double host_effect_fit(struct queue_model *model, const struct arrivals *arrivals, const int64_t *latency_ns,
		       int64_t chunk_rows);

struct variant;

struct variant *host_effect_new(void);
void host_effect_free(struct variant *variant);

/*
 * Adds I/Os. complete_ns NULL: the queue computes it. waited_ns: time before the arrival in which a full queue of the
 * drive delayed the I/O. late_ns: arrival - due, -1 without a deadline. workload: 1 for workload I/O.
 */
void host_effect_add(struct variant *variant, const struct queue_model *model, const struct arrivals *arrivals,
		     const int64_t *complete_ns, const int64_t *waited_ns, const int64_t *late_ns,
		     const uint8_t *workload);

enum host_effect_value {
	VALUE_COUNT,
	VALUE_SUM,  /* of latencies */
	VALUE_WAIT, /* time with at least one outstanding, from waited_ns before its arrival */
	VALUE_RESPONSE_COUNT,
};

/* direction: 0 reads, 1 writes. */
int64_t host_effect_value(const struct variant *variant, int direction, int value);

/* Nearest rank, the start of its bin (1/1024 wide). response: from due instead of from the arrival. */
int64_t host_effect_percentile(const struct variant *variant, int direction, int response, int64_t rank);

/* From the first arrival to the last completion of workload I/O; of all I/O if there is none. */
int64_t host_effect_load_time(const struct variant *variant);
