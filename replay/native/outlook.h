/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which row goes next, and for how long there is none: what the issuing loop asks on each of its turns. */
#ifndef BLKREEL_OUTLOOK_H
#define BLKREEL_OUTLOOK_H

#include "clock.h"
#include "engine.h"

/* The longest sleep: how late a signal that came just before it is seen. */
#define NAP_NS (50 * NS_PER_MS)
/* While the plan or room for records is missing: how often to look. */
#define LOOK_AGAIN_NS 50000ll

/* When the next row could go, and whether rows or room to know them are missing. */
struct outlook {
	int64_t due_ns; /* of the next row that a lane has room for; LANE_NOTHING */
	bool starving;  /* a plan is not there yet */
	bool full;      /* a row is due, and there is no room for it */
	bool behind;    /* ... and it has a deadline */
	bool ended;     /* nothing is left to issue */
};

/*
 * The lane whose row goes next: of those with a deadline that has come, the
 * earliest; then those without, in turn, so that none of them starves another
 * or keeps one with a deadline waiting. NULL: none can go.
 */
struct lane *outlook_choose_lane(struct engine *engine, int64_t now_ns);

/* Notes which lanes have come to their end, so that those in the background end, too. */
void outlook_finish_lanes(struct engine *engine);

/* Whether a lane has rows left although no stop was asked for: its time was over. At the end of a run. */
bool outlook_was_cut_off(struct engine *engine);

struct outlook outlook_now(struct engine *engine, int64_t now_ns);

/*
 * How long there is nothing to do but to wait for a completion: 0 means spin
 * or go on, because a deadline is near or a row can be issued.
 */
int64_t outlook_idle_ns(const struct engine *engine, const struct outlook *outlook, int64_t now_ns);

/*
 * Whether to look for a completion instead of sleeping for it: where times
 * count, and not for long. With its queue full the drive needs the processor
 * more than we do.
 */
bool outlook_looks(const struct engine *engine, const struct outlook *outlook, int64_t now_ns, int64_t active_ns);

#endif
