/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The issuing loop of one thread: issues each row of its lanes at its deadline, within the lane's depth. */
#pragma once

#include "issuer.h"
#include "lane_select.h"
#include "monitor/stall_monitor.h"
#include "plan/hazard.h"
#include "records/records.h"
#include "records/totals.h"
#include "run/clock.h"

#define MAX_ERRORS 1000u /* consecutive failures that end the run */

struct engine {
	/* Set by the caller. */
	struct lane_select select;
	struct records *records;
	struct issuer *issuer;
	struct stop *stop;
	bool any_background; /* lanes of any thread */
	bool realtime;       /* real-time priority was granted */
	struct run_clock clock;

	struct totals totals;
	struct stall_monitor monitor; /* initialized in the issuing thread */
	unsigned depth;               /* of all lanes together */
	struct io *ios;
	uint32_t *free_slots;
	uint32_t free_count;
	int64_t changing[MAX_TARGETS]; /* outstanding rows that write or discard, of each target */
	uint32_t batch[BATCH_ROWS]; /* slots that are prepared and not yet submitted */
	unsigned batch_count;
	bool batch_waits; /* the kernel has not taken all of the batch yet; its rows have a stamp */
	struct hazard hazard;
	bool counts_hazards;
	int64_t reviewed_ns;    /* when the priority was last reviewed */
	int64_t slept_ns;       /* since then */
	bool realtime_given_up; /* until the thread sleeps enough again */
	unsigned consecutive_errors;
	bool records_full; /* no room for records */
};

static inline uint32_t engine_outstanding(const struct engine *engine)
{
	return engine->depth - engine->free_count;
}

/* Allocates and touches all memory before the run starts. The plans are loaded. Returns 0 or a negative errno. */
int engine_init(struct engine *engine);

/* With I/O outstanding nothing is freed, because the kernel may still write to the buffers. */
void engine_deinit(struct engine *engine);

/*
 * Runs the lanes from start_ns on the monotonic clock until they end or a stop is requested, then waits for
 * outstanding I/O.
 */
void engine_run(struct engine *engine, int64_t start_ns);
