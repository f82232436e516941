/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The loop that issues: every row in the order of the plan, when its deadline
 * has come and fewer than `depth` are outstanding. One thread, the only one
 * that touches the ring.
 */
#ifndef BLKREEL_ENGINE_H
#define BLKREEL_ENGINE_H

#include "issuer.h"
#include "plan.h"
#include "records.h"
#include "totals.h"
#include "watch.h"

struct engine {
	/* Given by the caller. */
	struct plan *plan;
	struct records *records;
	struct issuer *issuer;
	const struct target *target;
	struct progress *progress;
	struct stop *stop;
	struct totals totals;
	struct watch watch;   /* initialized in the issuing thread */
	unsigned depth;
	int64_t spin_ns;      /* the last stretch before a deadline is spun, not slept */
	unsigned max_errors;  /* so many failures in a row end the run; 0: never */

	/* The engine's own. */
	struct io *ios;
	uint32_t *free_slots;
	uint32_t free_count;
	uint32_t batch[BATCH_ROWS]; /* prepared, not yet in the kernel */
	unsigned batch_count;
	int64_t start_ns;
	int64_t queue_was_full_ns; /* the last moment a row was due and the queue full */
	int64_t writing_bytes; /* outstanding */
	unsigned errors_in_a_row;
	bool starving; /* the plan was not there when it was looked for */
	bool stalled;  /* no room for records */
};

/* Allocates and touches everything: nothing is allocated once the run has started. */
int engine_init(struct engine *engine);

/* Runs the plan, which has been waited for, until it ends or a stop is asked for, and waits for what is outstanding. */
void engine_run(struct engine *engine);

#endif
