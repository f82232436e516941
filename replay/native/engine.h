/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The loop that issues: the rows of its lanes, each when its deadline has come
 * and fewer than the lane's depth are outstanding. One thread, the only one
 * that touches the ring.
 */
#ifndef BLKREEL_ENGINE_H
#define BLKREEL_ENGINE_H

#include <stdatomic.h>

#include "hazard.h"
#include "issuer.h"
#include "lane.h"
#include "records.h"
#include "run_clock.h"
#include "totals.h"
#include "watch.h"

struct engine {
	/* Given by the caller. */
	struct lane *lanes;
	unsigned lane_count;
	struct records *records;
	struct issuer *issuer;
	const struct target *targets;
	unsigned target_count;
	struct stop *stop;
	struct totals totals;
	struct watch watch;   /* initialized in the issuing thread */
	unsigned depth;       /* of all lanes together */
	int64_t spin_ns;      /* the last stretch before a deadline is spun, not slept */
	int64_t payload_bytes; /* of data to write that are kept ready */
	unsigned max_errors;  /* so many failures in a row end the run; 0: never */
	int64_t stop_ns;      /* no row is issued later than that after the start; INT64_MAX: whenever */
	atomic_uint *foreground; /* lanes of all threads that keep those in the background going */
	bool any_background;     /* there are such */

	/* The engine's own. */
	struct io *ios;
	uint32_t *free_slots;
	uint32_t free_count;
	uint32_t batch[BATCH_ROWS]; /* prepared, not yet in the kernel */
	unsigned batch_count;
	unsigned next_lane; /* whose turn it is where no deadline decides */
	struct hazard hazard;
	bool watches_hazards;
	struct run_clock clock; /* is_virtual is given by the caller */
	int64_t requests[MAX_TARGETS]; /* outstanding at each */
	int64_t reviewed_ns;    /* when its priority was reviewed last, */
	int64_t slept_ns;       /* and how long the thread has slept since */
	bool realtime;          /* it may have real-time priority, by the caller */
	bool realtime_given_up; /* until it sleeps enough again */
	int64_t writing_bytes; /* outstanding */
	unsigned errors_in_a_row;
	bool stalled;  /* no room for records */
};

static inline uint32_t engine_outstanding(const struct engine *engine)
{
	return engine->depth - engine->free_count;
}

/* Allocates and touches everything: nothing is allocated once the run has started. The lanes' plans are loaded. */
int engine_init(struct engine *engine);

/* Runs the lanes from start_ns of the monotonic clock on, until they end or a stop is asked for, and waits for what is outstanding. */
void engine_run(struct engine *engine, int64_t start_ns);

#endif
