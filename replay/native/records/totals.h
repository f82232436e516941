/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The totals of a run, for its end block. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "monitor/stall_monitor.h"
#include "target/target.h"

struct totals {
	int64_t issued[OP_COUNT];
	int64_t completed[OP_COUNT];
	int64_t dropped[OP_COUNT];
	int64_t bytes[OP_COUNT]; /* of rows that completed without an error */
	int64_t altered[FIDELITY_COUNT];
	int64_t write_zeroes_of[MAX_TARGETS];
	int64_t errors;
	int64_t compares_unequal; /* without an error */
	int64_t split;        /* rows that the kernel splits into several requests */
	int64_t merged;       /* by the kernel into a neighbor, from the drive's counters */
	int64_t abandoned;    /* rows that never completed */
	int64_t queue_full;
	int64_t buffers_full; /* writes that waited because all write buffers were in flight */
	int64_t hazards;      /* rows that overlap another row in flight, which they did not in the source */
	int64_t dependent;    /* rows whose deadline came from other rows */
	int64_t window_full;  /* times that every row in the look-ahead window waited for others */
	int64_t underruns;
	int64_t record_stalls;
	int64_t involuntary_switches;
	int64_t realtime_given_up; /* times that a thread gave up real-time priority because it hardly slept */
	int64_t max_outstanding;
	int64_t min_lateness_ns, max_lateness_ns;
	int64_t max_host_lateness_ns; /* of rows that did not wait for a full queue */
	int64_t plan_ns; /* the last deadline that was issued */
	int64_t wall_ns; /* from the start to the last completion */
	int64_t start_monotonic_ns, start_realtime_ns;
	int64_t first_error; /* a negative errno; 0: none */
	int64_t first_error_row;
	bool time_limit; /* rows were left unissued at stop_ns */
};

void totals_init(struct totals *totals);

/* Adds the totals of another thread of the same run. */
void totals_add(struct totals *totals, const struct totals *other);

int64_t totals_sum(const int64_t *by_op);

struct issuer;
struct lane;

/* How the run was executed, for the end block. */
struct run_conditions {
	const struct target *targets;
	const struct lane *lanes;
	unsigned lane_count;
	unsigned thread_count;
	const char *features; /* a JSON object */
	const char *stopped;  /* why the run ended early; NULL: it did not */
	int64_t planned;      /* rows read */
	unsigned depth;
	int cpu; /* of the first issuing thread; -1: not pinned */
	bool memory_locked;
	bool realtime;
	uint64_t seed;
	const struct stall_monitor *const *monitors; /* of each thread */
	struct issuer *simulated; /* NULL: the drives are real */
};

/* Returns the end block as JSON, which the caller frees; NULL: out of memory. */
char *totals_json(const struct totals *totals, const struct run_conditions *conditions);
