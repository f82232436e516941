/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A plan with its own depth. Lanes do not wait for each other, so a lane with deadlines and one at a fixed depth can
 * share a run. Rows come in plan order, or in the order of the schedule if the plan has dependencies.
 */
#pragma once

#include "issue/issuer.h"
#include "plan.h"
#include "schedule.h"
#include "monitor/stall_monitor.h"

/* No row can be issued at the moment, at any time. */
#define LANE_NOTHING INT64_MAX

struct lane {
	struct plan plan;
	struct schedule schedule; /* used if plan.dependent */
	unsigned processors;      /* that the rows share; 0: as many as they need */
	int64_t turnaround_ns;    /* of the issuing thread: schedule.h */
	unsigned depth;
	unsigned outstanding;
	bool background;           /* ends when all foreground lanes have ended */
	int64_t start_ns;          /* time of the earliest issue; for rows without deadlines */
	bool finished;             /* of a foreground lane: no row is left or outstanding */
	unsigned number;           /* in the order of the options */
	int64_t queue_was_full_ns; /* when a row was last due while the queue was full */
	bool buffers_were_full;    /* the next write has waited for a buffer */
	bool starving;             /* the plan is late */
	int64_t starved_ns;        /* since when */
	struct stall_monitor *monitor;       /* of the issuing thread; NULL: none */
	bool window_was_full;
	int64_t underruns;
	int64_t window_full; /* times that every row in the look-ahead window waited for others */
	int64_t issued;
	int64_t dependent;
};

/* After the first blocks of the plan were read. Returns 0 or a negative errno. */
int lane_init(struct lane *lane);
void lane_deinit(struct lane *lane);

/*
 * The deadline of the next row where that has come, else a time before which none comes; -1: no deadline;
 * LANE_NOTHING: there is no row now.
 */
int64_t lane_next_due_ns(struct lane *lane, int64_t now_ns);

/* Target, op and extent of the next row. */
void lane_peek(const struct lane *lane, int16_t *target, int8_t *op, int64_t *offset_bytes, int64_t *length_bytes);

/* Rows of the lane that may be outstanding once the next row is issued. */
unsigned lane_depth(const struct lane *lane);

/* Moves the next row into `io`. */
void lane_take(struct lane *lane, struct io *io);

/* These report the progress of a row that lane_take returned. */
static inline void lane_submitted(struct lane *lane, const struct io *io)
{
	lane->issued++;
	if (lane->plan.dependent)
		schedule_submitted(&lane->schedule, io->ordinal, io->submit_ns, io->host_delay_ns);
}

/* stall_ns: how much earlier the completion may have been. */
static inline void lane_completed(struct lane *lane, const struct io *io, int64_t complete_ns, int64_t stall_ns)
{
	lane->outstanding--;
	if (lane->plan.dependent)
		schedule_completed(&lane->schedule, io->ordinal, complete_ns, io->host_delay_ns + stall_ns);
}

/* Instead of both, of a row that is not issued. */
static inline void lane_skipped(struct lane *lane, const struct io *io)
{
	lane->outstanding--;
	if (lane->plan.dependent)
		schedule_skipped(&lane->schedule, io->ordinal, io->submit_ns, io->host_delay_ns);
}

/* Whether no row is left and none will come. */
bool lane_exhausted(struct lane *lane);
