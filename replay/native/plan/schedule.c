/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "schedule.h"

#include <errno.h>

#include "heap.h"
#include "run/memory.h"

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
	*schedule = (struct schedule){
		.rows = alloc_touched(SCHEDULE_AHEAD, sizeof(*schedule->rows)),
		.free_rows = alloc_touched(SCHEDULE_AHEAD, sizeof(*schedule->free_rows)),
		.heap = alloc_touched(SCHEDULE_AHEAD, sizeof(*schedule->heap)),
		.history = alloc_touched(SCHEDULE_HISTORY, sizeof(*schedule->history)),
		.next_edge = alloc_touched(SCHEDULE_AHEAD * EDGES_PER_ROW, sizeof(*schedule->next_edge)),
	};
	if (!schedule->rows || !schedule->free_rows || !schedule->heap || !schedule->history || !schedule->next_edge)
		return -ENOMEM;
	for (uint32_t i = 0; i < SCHEDULE_AHEAD; i++)
		schedule->free_rows[i] = SCHEDULE_AHEAD - 1 - i;
	schedule->free_count = SCHEDULE_AHEAD;
	return 0;
}

void schedule_deinit(struct schedule *schedule)
{
	free(schedule->rows);
	free(schedule->free_rows);
	free(schedule->heap);
	free(schedule->history);
	free(schedule->next_edge);
}

bool schedule_has_room(struct schedule *schedule)
{
	/* An incomplete row keeps its entry in the history. */
	return schedule->free_count > 0 && schedule->admitted - schedule->oldest_open < SCHEDULE_HISTORY;
}

/* By deadline, then in plan order. */
static bool comes_before(const struct schedule *schedule, uint32_t a, uint32_t b)
{
	const struct waiting_row *x = &schedule->rows[a], *y = &schedule->rows[b];

	return x->row.due_ns != y->row.due_ns ? x->row.due_ns < y->row.due_ns : x->ordinal < y->ordinal;
}

DEFINE_HEAP(slots, uint32_t, const struct schedule *, comes_before)

void schedule_pop(struct schedule *schedule)
{
	schedule->free_rows[schedule->free_count++] = schedule->heap[0];
	schedule->heap_count--;
	slots_replace(schedule, schedule->heap, schedule->heap_count, schedule->heap[schedule->heap_count]);
}

static void follow(struct waiting_row *row, int64_t when_ns, int64_t host_delay_ns)
{
	if (when_ns > row->row.due_ns)
		row->row.due_ns = when_ns;
	if (when_ns - host_delay_ns > row->undelayed_due_ns)
		row->undelayed_due_ns = when_ns - host_delay_ns;
}

/* One dependency of the row was met. */
static void meet_dependency(struct schedule *schedule, uint32_t slot, int64_t when_ns, int64_t host_delay_ns)
{
	struct waiting_row *row = &schedule->rows[slot];

	follow(row, when_ns, host_delay_ns);
	if (--row->missing)
		return;
	if (row->dependent) {
		row->row.due_ns += row->delay_ns;
		row->undelayed_due_ns += row->delay_ns;
	}
	slots_push(schedule, schedule->heap, schedule->heap_count++, slot);
}

static void add_dependency(struct schedule *schedule, uint32_t slot, unsigned which, int32_t back)
{
	struct waiting_row *row = &schedule->rows[slot];
	struct row_history *parent;
	uint32_t *list, edge = slot * EDGES_PER_ROW + which;
	int64_t when_ns;

	if (!back)
		return;
	parent = history_of(schedule, row->ordinal - (uint64_t)back);
	when_ns = which == BEHIND_EDGE ? parent->submit_ns : parent->complete_ns;
	row->dependent = true;
	if (when_ns != HISTORY_OPEN) {
		follow(row, which == BEHIND_EDGE ? when_ns + row->compute_ns : when_ns, which == BEHIND_EDGE ? parent->submit_delay_ns : parent->complete_delay_ns);
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
		(struct row_history){ HISTORY_OPEN, HISTORY_OPEN, 0, 0, NO_EDGE, NO_EDGE };
	*row = (struct waiting_row){
		.row = plan_row_at(block, i),
		.compute_ns = block->compute_ns[i],
		.delay_ns = block->delay_ns[i],
		.ordinal = schedule->admitted++,
		/* Kept out of the heap until all dependencies are added. */
		.missing = 1,
	};
	row->row.due_ns = row->undelayed_due_ns = INT64_MIN;
	for (unsigned k = 0; k < PLAN_PARENTS; k++)
		add_dependency(schedule, slot, k, block->after[k][i]);
	add_dependency(schedule, slot, BEHIND_EDGE, block->behind[i]);
	meet_dependency(schedule, slot, row->dependent ? INT64_MIN : block->due_ns[i], 0);
}

static void meet_dependencies(struct schedule *schedule, uint32_t edge, int64_t when_ns, int64_t host_delay_ns)
{
	while (edge != NO_EDGE) {
		uint32_t next = schedule->next_edge[edge], slot = edge / EDGES_PER_ROW;
		bool is_behind = edge % EDGES_PER_ROW == BEHIND_EDGE;

		meet_dependency(schedule, slot, is_behind ? when_ns + schedule->rows[slot].compute_ns : when_ns,
				host_delay_ns);
		edge = next;
	}
}

void schedule_submitted(struct schedule *schedule, uint64_t ordinal, int64_t submit_ns, int64_t host_delay_ns)
{
	struct row_history *history = history_of(schedule, ordinal);

	history->submit_ns = submit_ns;
	history->submit_delay_ns = host_delay_ns;
	meet_dependencies(schedule, history->first_behind, submit_ns, host_delay_ns);
}

void schedule_completed(struct schedule *schedule, uint64_t ordinal, int64_t complete_ns, int64_t host_delay_ns)
{
	struct row_history *history = history_of(schedule, ordinal);

	history->complete_ns = complete_ns;
	history->complete_delay_ns = host_delay_ns;
	meet_dependencies(schedule, history->first_after, complete_ns, host_delay_ns);
	while (schedule->oldest_open < schedule->admitted &&
	       history_of(schedule, schedule->oldest_open)->complete_ns != HISTORY_OPEN)
		schedule->oldest_open++;
}
