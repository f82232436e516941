/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "schedule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EDGES_PER_ROW (PLAN_PARENTS + 1)
#define BEHIND_EDGE PLAN_PARENTS
#define NO_EDGE UINT32_MAX
#define HISTORY_OPEN INT64_MIN

static struct row_history *history_of(struct schedule *schedule, uint64_t ordinal)
{
	return &schedule->history[ordinal % SCHEDULE_HISTORY];
}

int schedule_init(struct schedule *schedule)
{
	memset(schedule, 0, sizeof(*schedule));
	schedule->rows = calloc(SCHEDULE_AHEAD, sizeof(*schedule->rows));
	schedule->free_rows = calloc(SCHEDULE_AHEAD, sizeof(*schedule->free_rows));
	schedule->heap = calloc(SCHEDULE_AHEAD, sizeof(*schedule->heap));
	schedule->history = calloc(SCHEDULE_HISTORY, sizeof(*schedule->history));
	schedule->next_edge = calloc(SCHEDULE_AHEAD * EDGES_PER_ROW, sizeof(*schedule->next_edge));
	if (!schedule->rows || !schedule->free_rows || !schedule->heap || !schedule->history || !schedule->next_edge)
		return -ENOMEM;
	memset(schedule->rows, 0, SCHEDULE_AHEAD * sizeof(*schedule->rows));
	memset(schedule->heap, 0, SCHEDULE_AHEAD * sizeof(*schedule->heap));
	memset(schedule->history, 0, SCHEDULE_HISTORY * sizeof(*schedule->history));
	memset(schedule->next_edge, 0, SCHEDULE_AHEAD * EDGES_PER_ROW * sizeof(*schedule->next_edge));
	for (uint32_t i = 0; i < SCHEDULE_AHEAD; i++)
		schedule->free_rows[i] = SCHEDULE_AHEAD - 1 - i;
	schedule->free_count = SCHEDULE_AHEAD;
	return 0;
}

bool schedule_has_room(struct schedule *schedule)
{
	/* The place in the history of a row that is still to complete is not to be taken by another. */
	return schedule->free_count > 0 && schedule->admitted - schedule->oldest_open < SCHEDULE_HISTORY;
}

/* By deadline, and in the plan's order where that is the same. */
static bool comes_before(const struct schedule *schedule, uint32_t a, uint32_t b)
{
	const struct waiting_row *x = &schedule->rows[a], *y = &schedule->rows[b];

	return x->due_ns != y->due_ns ? x->due_ns < y->due_ns : x->ordinal < y->ordinal;
}

static void heap_push(struct schedule *schedule, uint32_t slot)
{
	uint32_t at = schedule->heap_count++;

	while (at > 0) {
		uint32_t parent = (at - 1) / 2;

		if (!comes_before(schedule, slot, schedule->heap[parent]))
			break;
		schedule->heap[at] = schedule->heap[parent];
		at = parent;
	}
	schedule->heap[at] = slot;
}

void schedule_pop(struct schedule *schedule)
{
	uint32_t slot = schedule->heap[--schedule->heap_count], count = schedule->heap_count, at = 0;

	schedule->free_rows[schedule->free_count++] = schedule->heap[0];
	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child >= count)
			break;
		if (child + 1 < count && comes_before(schedule, schedule->heap[child + 1], schedule->heap[child]))
			child++;
		if (!comes_before(schedule, schedule->heap[child], slot))
			break;
		schedule->heap[at] = schedule->heap[child];
		at = child;
	}
	schedule->heap[at] = slot;
}

/* One thing that the row waited for has come. */
static void one_less_missing(struct schedule *schedule, uint32_t slot, int64_t when_ns)
{
	struct waiting_row *row = &schedule->rows[slot];

	if (when_ns > row->due_ns)
		row->due_ns = when_ns;
	if (--row->missing)
		return;
	if (row->anchored)
		row->due_ns += row->delay_ns;
	heap_push(schedule, slot);
}

static void wait_for(struct schedule *schedule, uint32_t slot, unsigned which, int32_t back)
{
	struct waiting_row *row = &schedule->rows[slot];
	struct row_history *parent;
	uint32_t *list, edge = slot * EDGES_PER_ROW + which;
	int64_t when_ns;

	if (!back)
		return;
	parent = history_of(schedule, row->ordinal - back);
	when_ns = which == BEHIND_EDGE ? parent->submit_ns : parent->complete_ns;
	row->anchored = true;
	if (when_ns != HISTORY_OPEN) {
		if (when_ns > row->due_ns)
			row->due_ns = when_ns;
		return;
	}
	list = which == BEHIND_EDGE ? &parent->first_behind : &parent->first_after;
	schedule->next_edge[edge] = *list;
	*list = edge;
	row->missing++;
}

void schedule_admit(struct schedule *schedule, const struct plan_block *block, uint32_t i)
{
	uint32_t slot = schedule->free_rows[--schedule->free_count];
	struct waiting_row *row = &schedule->rows[slot];

	*history_of(schedule, schedule->admitted) =
		(struct row_history){ HISTORY_OPEN, HISTORY_OPEN, NO_EDGE, NO_EDGE };
	*row = (struct waiting_row){
		.due_ns = INT64_MIN,
		.delay_ns = block->delay_ns[i],
		.offset_bytes = block->offset_bytes[i],
		.length_bytes = block->length_bytes[i],
		.source_row = block->source_row[i],
		.captured_ns = block->captured_ns ? block->captured_ns[i] : 0,
		.captured_latency_ns = block->captured_latency_ns ? block->captured_latency_ns[i] : -1,
		.ordinal = schedule->admitted++,
		.flags = block->flags[i],
		.burst = block->burst[i],
		.stream = block->stream[i],
		.target = block->target ? block->target[i] : 0,
		.op = block->op[i],
		/* Held until all its anchors are looked at. */
		.missing = 1,
	};
	for (unsigned k = 0; k < PLAN_PARENTS; k++)
		wait_for(schedule, slot, k, block->after[k][i]);
	wait_for(schedule, slot, BEHIND_EDGE, block->behind[i]);
	one_less_missing(schedule, slot, row->anchored ? INT64_MIN : block->due_ns[i]);
}

static void tell(struct schedule *schedule, uint32_t edge, int64_t when_ns)
{
	while (edge != NO_EDGE) {
		uint32_t next = schedule->next_edge[edge];

		one_less_missing(schedule, edge / EDGES_PER_ROW, when_ns);
		edge = next;
	}
}

void schedule_submitted(struct schedule *schedule, uint64_t ordinal, int64_t submit_ns)
{
	struct row_history *history = history_of(schedule, ordinal);

	history->submit_ns = submit_ns;
	tell(schedule, history->first_behind, submit_ns);
}

void schedule_completed(struct schedule *schedule, uint64_t ordinal, int64_t complete_ns)
{
	struct row_history *history = history_of(schedule, ordinal);

	history->complete_ns = complete_ns;
	tell(schedule, history->first_after, complete_ns);
	while (schedule->oldest_open < schedule->admitted &&
	       history_of(schedule, schedule->oldest_open)->complete_ns != HISTORY_OPEN)
		schedule->oldest_open++;
}
