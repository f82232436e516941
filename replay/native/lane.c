/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "lane.h"

/* These say what the engine did, not what the plan wants: a trace may be a run. */
#define RUN_FLAGS (FLAG_QUEUE_FULL | FLAG_HAZARD | FLAG_ANCHORED)

int lane_init(struct lane *lane)
{
	lane->queue_was_full_ns = INT64_MIN;
	return lane->plan.anchored ? schedule_init(&lane->schedule) : 0;
}

/* No row is there: the plan is at its end, or late. */
static void find_missing(struct lane *lane, int64_t now_ns)
{
	bool starving = !plan_exhausted(&lane->plan);

	if (starving && !lane->starving)
		lane->starved_ns = now_ns;
	lane->starving = starving;
}

/* A row that was looked for in vain has come: too late, where it was due. */
static void end_starving(struct lane *lane, int64_t due_ns, int64_t now_ns)
{
	if (!lane->starving)
		return;
	lane->starving = false;
	if (lane->watch)
		watch_plan_late(lane->watch, lane->starved_ns, due_ns, now_ns);
	if (due_ns < now_ns)
		lane->underruns++;
}

/* Admits rows until the schedule is full or the plan has none at the moment. */
static void look_ahead(struct lane *lane, int64_t now_ns)
{
	struct plan *plan = &lane->plan;

	while (schedule_has_room(&lane->schedule)) {
		lane->window_was_full = false;
		if (!plan_has_row(plan)) {
			find_missing(lane, now_ns);
			return;
		}
		/* A row behind another may be late because of that; one with its own deadline can tell. */
		end_starving(lane, plan->current->due_ns[plan->next] < 0 ? INT64_MAX : plan->current->due_ns[plan->next],
			     now_ns);
		schedule_admit(&lane->schedule, plan->current, plan->next++);
	}
	if (!schedule_first(&lane->schedule) && !lane->window_was_full) {
		lane->window_was_full = true;
		lane->window_full++;
	}
}

int64_t lane_next_due_ns(struct lane *lane, int64_t now_ns)
{
	struct plan *plan = &lane->plan;

	if (plan->anchored) {
		const struct waiting_row *row;

		look_ahead(lane, now_ns);
		row = schedule_first(&lane->schedule);
		return row ? row->due_ns : LANE_NOTHING;
	}
	if (!plan_has_row(plan)) {
		find_missing(lane, now_ns);
		return LANE_NOTHING;
	}
	end_starving(lane, plan->current->due_ns[plan->next], now_ns);
	return plan->current->due_ns[plan->next];
}

static void take_waiting(struct lane *lane, struct io *io)
{
	const struct waiting_row *row = schedule_first(&lane->schedule);

	io->due_ns = row->due_ns;
	io->offset_bytes = row->offset_bytes;
	io->length_bytes = row->length_bytes;
	io->source_row = row->source_row;
	io->captured_ns = row->captured_ns;
	io->captured_latency_ns = row->captured_latency_ns;
	io->ordinal = row->ordinal;
	io->flags = (row->flags & ~RUN_FLAGS) | (row->anchored ? FLAG_ANCHORED : 0);
	io->burst = row->burst;
	io->stream = row->stream;
	io->target = row->target;
	io->op = row->op;
	lane->anchored += row->anchored;
	schedule_pop(&lane->schedule);
}

void lane_peek(const struct lane *lane, int16_t *target, int8_t *op, int64_t *length_bytes)
{
	const struct plan_block *block = lane->plan.current;
	const struct waiting_row *row;

	if (lane->plan.anchored) {
		row = schedule_first(&lane->schedule);
		*target = row->target;
		*op = row->op;
		*length_bytes = row->length_bytes;
		return;
	}
	*target = block->target ? block->target[lane->plan.next] : 0;
	*op = block->op[lane->plan.next];
	*length_bytes = block->length_bytes[lane->plan.next];
}

void lane_take(struct lane *lane, struct io *io)
{
	struct plan_block *block = lane->plan.current;
	uint32_t i = lane->plan.next;

	lane->outstanding++;
	if (lane->plan.anchored) {
		take_waiting(lane, io);
		return;
	}
	lane->plan.next++;
	io->due_ns = block->due_ns[i];
	io->offset_bytes = block->offset_bytes[i];
	io->length_bytes = block->length_bytes[i];
	io->source_row = block->source_row[i];
	io->captured_ns = block->captured_ns ? block->captured_ns[i] : 0;
	io->captured_latency_ns = block->captured_latency_ns ? block->captured_latency_ns[i] : -1;
	io->flags = block->flags[i] & ~RUN_FLAGS;
	io->burst = block->burst[i];
	io->stream = block->stream[i];
	io->target = block->target ? block->target[i] : 0;
	io->op = block->op[i];
}

bool lane_exhausted(struct lane *lane)
{
	return plan_exhausted(&lane->plan) && (!lane->plan.anchored || schedule_empty(&lane->schedule));
}
