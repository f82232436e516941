/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One plan with a depth of its own. Lanes do not wait for each other: that is
 * how a writer in time and a reader at a fixed depth share a run.
 *
 * The rows of a plan without anchors come in its order; with anchors, as the
 * schedule says.
 */
#ifndef BLKREEL_LANE_H
#define BLKREEL_LANE_H

#include "issuer.h"
#include "plan.h"
#include "schedule.h"
#include "watch.h"

/* No row can be issued at the moment, whatever the time. */
#define LANE_NOTHING INT64_MAX

struct lane {
	struct plan plan;
	struct schedule schedule; /* where plan.anchored */
	unsigned depth;
	unsigned outstanding;
	bool background;           /* it goes on only as long as another one does */
	bool finished;             /* without a row left or outstanding; of those that are not in the background */
	unsigned number;           /* in the order in which the lanes were given */
	int64_t queue_was_full_ns; /* the last moment a row was due and the queue full */
	bool starving;             /* the plan was not there when it was looked for */
	int64_t starved_ns;        /* since when */
	struct watch *watch;       /* of the thread that issues it; NULL: nobody does */
	bool window_was_full;
	int64_t underruns;
	int64_t window_full; /* times that all rows known ahead were waiting */
	int64_t issued;
	int64_t anchored;
};

/* Once the plan's first blocks are there: 0 or a negative errno. */
int lane_init(struct lane *lane);

/* The deadline of the row that comes next, -1 for one without; LANE_NOTHING where there is none now. */
int64_t lane_next_due_ns(struct lane *lane, int64_t now_ns);

/* Where the row goes that comes next, what it is, and how long. */
void lane_peek(const struct lane *lane, int16_t *target, int8_t *op, int64_t *length_bytes);

/* Takes that row: fills in what of `io` comes from the plan. */
void lane_take(struct lane *lane, struct io *io);

/* What became of a row that lane_take gave. */
static inline void lane_submitted(struct lane *lane, const struct io *io)
{
	lane->issued++;
	if (lane->plan.anchored)
		schedule_submitted(&lane->schedule, io->ordinal, io->submit_ns);
}

static inline void lane_completed(struct lane *lane, const struct io *io, int64_t complete_ns)
{
	lane->outstanding--;
	if (lane->plan.anchored)
		schedule_completed(&lane->schedule, io->ordinal, complete_ns);
}

/* No row is left and none will come. */
bool lane_exhausted(struct lane *lane);

#endif
