/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Selects the lane whose row is issued next, and computes the time until a row can be issued. */
#pragma once

#include <stdatomic.h>

#include "plan/lane.h"
#include "plan/zone_guard.h"
#include "run/clock.h"

/* The longest sleep: bounds how late a signal that came just before it takes effect. */
#define IDLE_MAX_NS (50 * NS_PER_MS)
/* Before a deadline the thread spins instead of sleeping. */
#define SPIN_NS 100000ll
/* How often to check while the plan or room for records is missing. */
#define RETRY_NS 50000ll

/* Requests in flight at a target, of all threads. The padding keeps counters out of each other's cache line. */
struct target_load {
	atomic_llong requests;
	char padding[64 - sizeof(atomic_llong)];
};

struct lane_select {
	struct lane *lanes;
	unsigned lane_count;
	const struct target *targets;
	struct payload *payload; /* writes wait for room in it; NULL: they need none */
	int64_t stop_ns;         /* after the start; no row is issued later. INT64_MAX: no limit */
	atomic_uint *foreground; /* unfinished foreground lanes of all threads */
	struct target_load *loads; /* of each target; shared by all threads */
	struct zone_guard zone_guard;
	bool shares_loads;         /* with other threads, whose completions do not wake this one */

	unsigned next_lane; /* takes its turn where no deadline decides */
};

/* Adds to the requests in flight at a target, or takes them off. A queue without a limit needs no count. */
static inline void lane_select_add_requests(struct lane_select *select, int16_t target, int64_t requests)
{
	if (select->targets[target].queue_requests)
		atomic_fetch_add_explicit(&select->loads[target].requests, requests, memory_order_relaxed);
}

/* When the next row can be issued, and what is missing. */
struct lane_summary {
	int64_t due_ns; /* of the next row that its lane has room for; LANE_NOTHING */
	bool starving;  /* a plan is late */
	bool full;      /* a row is due, and its queue or the buffers are full */
	bool behind;    /* ... and it has a deadline */
	bool ended;     /* nothing is left to issue */
};

/*
 * The lane with the earliest deadline that has passed; otherwise the lanes without deadlines in turn, so that none
 * starves another. NULL: no row can be issued.
 */
struct lane *lane_select_next(struct lane_select *select, int64_t now_ns);

/* Marks the lanes that have ended, so that background lanes end too. */
void lane_select_finish(struct lane_select *select);

/* At the end of a run: whether stop_ns left rows unissued. */
bool lane_select_was_cut_off(struct lane_select *select);

struct lane_summary lane_select_summary(struct lane_select *select, int64_t now_ns);

/* How long to sleep for a completion; 0: spin or go on, because a deadline is near or a row can be issued. */
int64_t lane_select_idle_ns(const struct lane_select *select, const struct lane_summary *summary, int64_t now_ns,
			    bool outstanding);
