/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "schedule.h"

#include <errno.h>
#include <limits.h>

#include "heap.h"
#include "run/memory.h"

#define EDGES_PER_ROW (PLAN_PARENTS + 1)
#define BEHIND_EDGE PLAN_PARENTS
#define NO_EDGE UINT32_MAX
#define HISTORY_OPEN INT64_MIN
#define FAR_NS 1e18 /* no run lasts that long */

static struct row_history *history_of(struct schedule *schedule, uint64_t ordinal)
{
	return &schedule->history[ordinal % SCHEDULE_HISTORY];
}

int schedule_init(struct schedule *schedule, unsigned processors, int64_t turnaround_ns)
{
	*schedule = (struct schedule){
		.turnaround_ns = turnaround_ns,
		.completed_ns = INT64_MIN,
		.processors = {
			.count = processors ? processors : UINT_MAX,
			.heap = alloc_touched(SCHEDULE_AHEAD, sizeof(*schedule->processors.heap)),
			.ready = alloc_touched(SCHEDULE_AHEAD, sizeof(*schedule->processors.ready)),
		},
		.rows = alloc_touched(SCHEDULE_AHEAD, sizeof(*schedule->rows)),
		.free_rows = alloc_touched(SCHEDULE_AHEAD, sizeof(*schedule->free_rows)),
		.heap = alloc_touched(SCHEDULE_AHEAD, sizeof(*schedule->heap)),
		.history = alloc_touched(SCHEDULE_HISTORY, sizeof(*schedule->history)),
		.next_edge = alloc_touched(SCHEDULE_AHEAD * EDGES_PER_ROW, sizeof(*schedule->next_edge)),
	};
	if (!schedule->rows || !schedule->free_rows || !schedule->heap || !schedule->history || !schedule->next_edge ||
	    !schedule->processors.heap || !schedule->processors.ready)
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
	free(schedule->processors.heap);
	free(schedule->processors.ready);
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

static void delay(struct waiting_row *row, int64_t time_ns)
{
	row->row.due_ns += time_ns;
	row->undelayed_due_ns += time_ns;
}

/* It has its deadline. What is not issued happens at that time, even if it is past. */
static void set_ready(struct schedule *schedule, uint32_t slot)
{
	struct waiting_row *row = &schedule->rows[slot];

	if (row->dependent && !(row->row.flags & PLAN_OMITTED) && row->row.due_ns < schedule->completed_ns) {
		int64_t late_ns = schedule->completed_ns - row->row.due_ns;

		delay(row, late_ns < schedule->turnaround_ns ? late_ns : schedule->turnaround_ns);
	}
	slots_push(schedule, schedule->heap, schedule->heap_count++, slot);
}

/* One dependency of the row was met. */
static void meet_dependency(struct schedule *schedule, uint32_t slot, int64_t when_ns, int64_t host_delay_ns)
{
	struct waiting_row *row = &schedule->rows[slot];

	follow(row, when_ns, host_delay_ns);
	if (--row->missing)
		return;
	if (row->dependent)
		delay(row, row->delay_ns);
	if (row->dependent && row->delay_cpu_ns)
		slots_push(schedule, schedule->processors.ready, schedule->processors.ready_count++, slot);
	else
		set_ready(schedule, slot);
}

/* ---- processor time ---- */

static bool ends_before(const struct schedule *schedule, uint32_t a, uint32_t b)
{
	const struct waiting_row *x = &schedule->rows[a], *y = &schedule->rows[b];

	return x->computed_at != y->computed_at ? x->computed_at < y->computed_at : x->ordinal < y->ordinal;
}

DEFINE_HEAP(computing, uint32_t, const struct schedule *, ends_before)

/* The part of a processor that each of so many rows gets. */
static double share_of(const struct processors *processors, uint32_t rows)
{
	return rows > processors->count ? (double)processors->count / rows : 1;
}

static void give_until(struct processors *processors, int64_t time_ns)
{
	if (time_ns <= processors->at_ns)
		return;
	processors->given_ns += (double)(time_ns - processors->at_ns) * share_of(processors, processors->heap_count);
	processors->at_ns = time_ns;
}

/* When the first computing row has its time if no other begins; INT64_MAX: none computes. */
static int64_t first_end_ns(const struct schedule *schedule)
{
	const struct processors *processors = &schedule->processors;
	double left_ns;

	if (!processors->heap_count)
		return INT64_MAX;
	left_ns = schedule->rows[processors->heap[0]].computed_at - processors->given_ns;
	left_ns /= share_of(processors, processors->heap_count);
	return left_ns < FAR_NS ? processors->at_ns + (int64_t)(left_ns + 0.5) : INT64_MAX - 1;
}

static void end_first(struct schedule *schedule, int64_t end_ns)
{
	struct processors *processors = &schedule->processors;
	uint32_t slot = processors->heap[0];
	struct waiting_row *row = &schedule->rows[slot];

	give_until(processors, end_ns);
	processors->heap_count--;
	computing_replace(schedule, processors->heap, processors->heap_count, processors->heap[processors->heap_count]);
	if (row->missing) {
		meet_dependency(schedule, slot, end_ns + row->compute_ns, row->computing_delay_ns);
		return;
	}
	delay(row, end_ns - row->row.due_ns);
	set_ready(schedule, slot);
}

/* A row computes from a time on, which is past, but may lie before the end of another row that is known already. */
static void begin(struct schedule *schedule, uint32_t slot, int64_t since_ns, int64_t cpu_ns)
{
	struct processors *processors = &schedule->processors;
	double missed_ns;

	give_until(processors, since_ns);
	missed_ns = (double)(processors->at_ns - since_ns) * share_of(processors, processors->heap_count + 1);
	schedule->rows[slot].computed_at = processors->given_ns - missed_ns + (double)cpu_ns;
	computing_push(schedule, processors->heap, processors->heap_count++, slot);
}

int64_t schedule_advance(struct schedule *schedule, int64_t now_ns)
{
	struct processors *processors = &schedule->processors;

	for (;;) {
		uint32_t slot = processors->ready_count ? processors->ready[0] : 0;
		int64_t begin_ns = processors->ready_count ? schedule->rows[slot].row.due_ns : INT64_MAX;
		int64_t end_ns = first_end_ns(schedule), next_ns = begin_ns < end_ns ? begin_ns : end_ns;

		if (next_ns > now_ns || next_ns == INT64_MAX)
			return schedule->heap_count && schedule->rows[schedule->heap[0]].row.due_ns < next_ns ?
				schedule->rows[schedule->heap[0]].row.due_ns : next_ns;
		if (end_ns <= begin_ns) {
			end_first(schedule, end_ns);
			continue;
		}
		processors->ready_count--;
		slots_replace(schedule, processors->ready, processors->ready_count, processors->ready[processors->ready_count]);
		begin(schedule, slot, begin_ns, schedule->rows[slot].delay_cpu_ns);
	}
}

/* ---- dependencies ---- */

/* The submission that a row is behind, or a completion, is known. */
static void meet_edge(struct schedule *schedule, uint32_t slot, bool is_behind, int64_t when_ns, int64_t host_delay_ns)
{
	struct waiting_row *row = &schedule->rows[slot];

	if (is_behind && row->compute_cpu_ns) {
		schedule_advance(schedule, when_ns);
		row->computing_delay_ns = host_delay_ns;
		begin(schedule, slot, when_ns, row->compute_cpu_ns);
	} else {
		meet_dependency(schedule, slot, is_behind ? when_ns + row->compute_ns : when_ns, host_delay_ns);
	}
}

static void add_dependency(struct schedule *schedule, uint32_t slot, unsigned which, int32_t back)
{
	struct waiting_row *row = &schedule->rows[slot];
	bool is_behind = which == BEHIND_EDGE;
	struct row_history *parent;
	uint32_t *list, edge = slot * EDGES_PER_ROW + which;
	int64_t when_ns;

	if (!back)
		return;
	parent = history_of(schedule, row->ordinal - (uint64_t)back);
	when_ns = is_behind ? parent->submit_ns : parent->complete_ns;
	row->dependent = true;
	row->missing++;
	if (when_ns != HISTORY_OPEN) {
		meet_edge(schedule, slot, is_behind, when_ns, is_behind ? parent->submit_delay_ns : parent->complete_delay_ns);
		return;
	}
	list = is_behind ? &parent->first_behind : &parent->first_after;
	schedule->next_edge[edge] = *list;
	*list = edge;
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
		.compute_cpu_ns = block->compute_cpu_ns[i],
		.delay_cpu_ns = block->delay_cpu_ns[i],
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

static void meet_edges(struct schedule *schedule, uint32_t edge, int64_t when_ns, int64_t host_delay_ns)
{
	while (edge != NO_EDGE) {
		uint32_t next = schedule->next_edge[edge];

		meet_edge(schedule, edge / EDGES_PER_ROW, edge % EDGES_PER_ROW == BEHIND_EDGE, when_ns, host_delay_ns);
		edge = next;
	}
}

static void complete(struct schedule *schedule, uint64_t ordinal, int64_t complete_ns, int64_t host_delay_ns)
{
	struct row_history *history = history_of(schedule, ordinal);

	history->complete_ns = complete_ns;
	history->complete_delay_ns = host_delay_ns;
	meet_edges(schedule, history->first_after, complete_ns, host_delay_ns);
	while (schedule->oldest_open < schedule->admitted &&
	       history_of(schedule, schedule->oldest_open)->complete_ns != HISTORY_OPEN)
		schedule->oldest_open++;
}

void schedule_submitted(struct schedule *schedule, uint64_t ordinal, int64_t submit_ns, int64_t host_delay_ns)
{
	struct row_history *history = history_of(schedule, ordinal);

	history->submit_ns = submit_ns;
	history->submit_delay_ns = host_delay_ns;
	meet_edges(schedule, history->first_behind, submit_ns, host_delay_ns);
}

void schedule_completed(struct schedule *schedule, uint64_t ordinal, int64_t complete_ns, int64_t host_delay_ns)
{
	if (complete_ns > schedule->completed_ns)
		schedule->completed_ns = complete_ns;
	complete_ns -= schedule->turnaround_ns;
	complete(schedule, ordinal, complete_ns > 0 ? complete_ns : 0, host_delay_ns);
}

void schedule_skipped(struct schedule *schedule, uint64_t ordinal, int64_t at_ns, int64_t host_delay_ns)
{
	schedule_submitted(schedule, ordinal, at_ns, host_delay_ns);
	complete(schedule, ordinal, at_ns, host_delay_ns);
}
