/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The order of rows that depend on each other. A look-ahead window holds the next rows of the plan. Each row waits for
 * the completions and the submission that it names; its deadline is the last of the completions and of the submission
 * plus its compute time, plus its delay, and then it enters a heap by deadline. Processor time before the compute time
 * and after the delay takes longer while more rows compute than there are processors. The times of rows are stored for
 * twice as many rows as a dependency can reach back. No I/O and no clock here.
 *
 * The turnaround is what the issuing thread needs from the end of an I/O at the drive to the next one at the drive. A
 * program's is part of its delays, so that completions count as earlier by it, as far as a row is not late for that.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "plan.h"

#define SCHEDULE_AHEAD (1u << 16)            /* rows in the look-ahead window */
#define SCHEDULE_HISTORY (2u * PLAN_REACH)   /* rows whose times are stored */

struct waiting_row {
	struct plan_row row; /* due_ns: the latest of its dependencies so far */
	int64_t undelayed_due_ns; /* the same, without delays of the host */
	int64_t compute_ns; /* between the submission that it follows and the thread's falling asleep */
	int64_t delay_ns;
	int64_t compute_cpu_ns, delay_cpu_ns; /* of a processor: before the first, after the second */
	double computed_at; /* of the processors' time that each row gets */
	int64_t computing_delay_ns; /* of the host, before the processor time after the submission */
	uint64_t ordinal; /* in the plan */
	bool dependent;
	uint8_t missing; /* dependencies it still waits for */
};

struct row_history {
	int64_t submit_ns; /* HISTORY_OPEN before the submission */
	int64_t complete_ns;
	int64_t submit_delay_ns; /* by the host, of this row and of those that it depended on */
	int64_t complete_delay_ns;
	uint32_t first_after;  /* first edge to the rows that wait for the completion; NO_EDGE */
	uint32_t first_behind; /* ... for the submission */
};

/*
 * Processors that computing rows share equally, as the kernel shares them among threads. Each row gets the same time,
 * so that the next to end is the one with the least at its begin plus its own.
 */
struct processors {
	unsigned count;
	int64_t at_ns; /* up to when given_ns is counted */
	double given_ns; /* to a row that computes all the time */
	uint32_t *heap;  /* rows that compute */
	uint32_t heap_count;
	uint32_t *ready; /* rows that compute after their delay, which may not be over */
	uint32_t ready_count;
};

struct schedule {
	struct waiting_row *rows; /* SCHEDULE_AHEAD */
	uint32_t *free_rows;
	uint32_t free_count;
	uint32_t *heap; /* rows that wait for their deadline only */
	uint32_t heap_count;
	struct processors processors;
	struct row_history *history;
	uint32_t *next_edge; /* edge = row * (PLAN_PARENTS + 1) + index of the dependency */
	int64_t turnaround_ns;
	int64_t completed_ns; /* the last completion */
	uint64_t admitted;   /* rows taken from the plan */
	uint64_t oldest_open; /* the first incomplete row */
};

/* Allocates and touches all memory. processors: that rows share; 0: as many as they need. Returns 0 or -ENOMEM. */
int schedule_init(struct schedule *schedule, unsigned processors, int64_t turnaround_ns);
void schedule_deinit(struct schedule *schedule);

/* Whether another row of the plan may be admitted. */
bool schedule_has_room(struct schedule *schedule);

/* Admits row i of the block. */
void schedule_admit(struct schedule *schedule, const struct plan_block *block, uint32_t i);

/*
 * Lets rows compute up to a time. Returns the time of the next event: the deadline of schedule_first() where that is not
 * later than now_ns; INT64_MAX: none is known.
 */
int64_t schedule_advance(struct schedule *schedule, int64_t now_ns);

/* The row with the earliest deadline, valid until schedule_pop; NULL: no row has one yet. */
static inline const struct waiting_row *schedule_first(const struct schedule *schedule)
{
	return schedule->heap_count ? &schedule->rows[schedule->heap[0]] : NULL;
}

void schedule_pop(struct schedule *schedule);

/* Whether the window is empty. */
static inline bool schedule_empty(const struct schedule *schedule)
{
	return schedule->free_count == SCHEDULE_AHEAD;
}

/* host_delay_ns: how much earlier it would have been without delays of the host, which rows after it inherit. */
void schedule_submitted(struct schedule *schedule, uint64_t ordinal, int64_t submit_ns, int64_t host_delay_ns);
void schedule_completed(struct schedule *schedule, uint64_t ordinal, int64_t complete_ns, int64_t host_delay_ns);
/* Instead of both, of a row that is not issued. */
void schedule_skipped(struct schedule *schedule, uint64_t ordinal, int64_t at_ns, int64_t host_delay_ns);
