/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which row comes next where rows wait for each other: a plan with anchors.
 *
 * Some thousand rows ahead are known. Each waits for the completions and the
 * submission that it names; when the last of them has come, its deadline is
 * that moment plus its delay, and the row joins a heap by deadline. When each
 * row was submitted and completed is remembered for twice as many rows as an
 * anchor may reach back, so no row ever asks for what was forgotten.
 *
 * Nothing here does I/O or looks at a clock.
 */
#ifndef BLKREEL_SCHEDULE_H
#define BLKREEL_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan.h"

#define SCHEDULE_AHEAD (1u << 16)            /* rows known and not yet issued */
#define SCHEDULE_HISTORY (2u * PLAN_REACH)   /* rows whose times are remembered */

struct waiting_row {
	int64_t due_ns; /* so far: the latest of what it waited for */
	int64_t delay_ns;
	int64_t offset_bytes;
	int64_t length_bytes;
	int64_t source_row;
	int64_t captured_ns;
	int64_t captured_latency_ns;
	uint64_t ordinal; /* in the plan */
	int32_t flags;
	int32_t burst;
	int16_t stream;
	int16_t target;
	int8_t op;
	bool anchored;
	uint8_t missing; /* what it still waits for */
};

struct row_history {
	int64_t submit_ns; /* HISTORY_OPEN until it is */
	int64_t complete_ns;
	uint32_t first_after;  /* the first edge of who waits for its completion; NO_EDGE */
	uint32_t first_behind; /* for its submission */
};

struct schedule {
	struct waiting_row *rows; /* SCHEDULE_AHEAD of them */
	uint32_t *free_rows;
	uint32_t free_count;
	uint32_t *heap; /* of rows that wait for their deadline only */
	uint32_t heap_count;
	struct row_history *history;
	uint32_t *next_edge; /* edge = row * (PLAN_PARENTS + 1) + which of its anchors */
	uint64_t admitted;   /* rows taken from the plan */
	uint64_t oldest_open; /* no row before it is incomplete */
};

/* Allocates and touches everything. */
int schedule_init(struct schedule *schedule);

/* Whether another row of the plan may be admitted. */
bool schedule_has_room(struct schedule *schedule);

/* Takes row i of the block. */
void schedule_admit(struct schedule *schedule, const struct plan_block *block, uint32_t i);

/* The row with the earliest deadline, or NULL where none has one yet. It stays until schedule_pop. */
static inline const struct waiting_row *schedule_first(const struct schedule *schedule)
{
	return schedule->heap_count ? &schedule->rows[schedule->heap[0]] : NULL;
}

void schedule_pop(struct schedule *schedule);

/* No row is waiting, for whatever. */
static inline bool schedule_empty(const struct schedule *schedule)
{
	return schedule->free_count == SCHEDULE_AHEAD;
}

void schedule_submitted(struct schedule *schedule, uint64_t ordinal, int64_t submit_ns);
void schedule_completed(struct schedule *schedule, uint64_t ordinal, int64_t complete_ns);

#endif
