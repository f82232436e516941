/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a run came to, told in its end block. */
#ifndef BLKREEL_TOTALS_H
#define BLKREEL_TOTALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "target.h"
#include "watch.h"

struct totals {
	int64_t issued[OP_COUNT];
	int64_t completed[OP_COUNT];
	int64_t dropped[OP_COUNT];
	int64_t bytes[OP_COUNT]; /* of rows completed without an error */
	int64_t altered[FIDELITY_COUNT];
	int64_t errors;
	int64_t split;     /* longer than the kernel sends in one request */
	int64_t write_zeroes_of[MAX_TARGETS];
	int64_t merged;    /* into a neighbour by the kernel, as the drive's counters tell */
	int64_t abandoned; /* never completed: the run gave up on them */
	int64_t queue_full;
	int64_t shared_payload; /* writes with so much else outstanding that their data may not be theirs alone */
	int64_t hazards;     /* in flight over common bytes with another, which in the source had not been so */
	int64_t anchored;    /* rows whose deadline came from other rows */
	int64_t window_full; /* times that all rows known ahead were waiting for others */
	int64_t underruns;
	int64_t record_stalls;
	int64_t involuntary_switches;
	bool time_limit; /* rows are left that were not issued because the time was over */
	int64_t realtime_given_up; /* times that a thread slept so little that it gave its priority up */
	int64_t max_outstanding;
	int64_t min_lateness_ns, max_lateness_ns;
	int64_t max_host_lateness_ns; /* of rows that no full queue held back */
	int64_t plan_ns; /* the last deadline that was issued */
	int64_t wall_ns; /* from the start to the last completion */
	int64_t start_monotonic_ns, start_realtime_ns;
	int first_error;
	int64_t first_error_row;
};

void totals_init(struct totals *totals);

/* What another thread of the same run came to, in addition. */
void totals_add(struct totals *totals, const struct totals *other);

int64_t totals_sum(const int64_t *by_op);

/* How the run was carried out; beside the totals in the end block. */
struct issuer;
struct lane;

struct circumstances {
	const struct target *targets;
	unsigned target_count;
	const struct lane *lanes;
	unsigned lane_count;
	unsigned thread_count;
	const char *features; /* a JSON object */
	const char *stopped;  /* NULL: the whole plan was issued */
	int64_t planned;      /* rows read */
	unsigned depth;
	int cpu; /* the first issuing thread was pinned to; -1: to none */
	bool memory_locked;
	bool realtime;
	uint64_t seed;
	const struct watch *const *watches; /* of each thread */
	struct issuer *simulated; /* NULL: the targets are not */
};

/* The end block's JSON; to be freed. NULL: no memory. */
char *totals_json(const struct totals *totals, const struct circumstances *how);

#endif
