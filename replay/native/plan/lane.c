/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "lane.h"

/* The engine sets these; a plan made from a run has them too. */
#define RUN_FLAGS (FLAG_QUEUE_FULL | FLAG_HAZARD | FLAG_ANCHORED | FLAG_HOST_STALLED)

int lane_init(struct lane *lane)
{
	lane->queue_was_full_ns = INT64_MIN;
	return lane->plan.dependent ? schedule_init(&lane->schedule, lane->processors, lane->turnaround_ns) : 0;
}

/* No row is available: the plan has ended, or is late. */
static void mark_missing(struct lane *lane, int64_t now_ns)
{
	bool starving = !plan_exhausted(&lane->plan);

	if (starving && !lane->starving)
		lane->starved_ns = now_ns;
	lane->starving = starving;
}

/* A missing row has arrived. It is an underrun if it was due before. */
static void end_starving(struct lane *lane, int64_t due_ns, int64_t now_ns)
{
	if (!lane->starving)
		return;
	lane->starving = false;
	if (lane->monitor)
		stall_monitor_plan_late(lane->monitor, lane->starved_ns, due_ns, now_ns);
	if (due_ns < now_ns)
		lane->underruns++;
}

/* Admits rows until the schedule is full or no row is available. Returns the time of the schedule's next event. */
static int64_t look_ahead(struct lane *lane, int64_t now_ns)
{
	struct plan *plan = &lane->plan;
	int64_t next_ns;

	while (schedule_has_room(&lane->schedule)) {
		lane->window_was_full = false;
		if (!plan_has_row(plan)) {
			mark_missing(lane, now_ns);
			return schedule_advance(&lane->schedule, now_ns);
		}
		/* Only a row with its own deadline shows that the plan is late. */
		end_starving(lane, plan->current->due_ns[plan->next] < 0 ? INT64_MAX : plan->current->due_ns[plan->next],
			     now_ns);
		schedule_admit(&lane->schedule, plan->current, plan->next++);
	}
	next_ns = schedule_advance(&lane->schedule, now_ns);
	if (next_ns == LANE_NOTHING && !lane->window_was_full) {
		lane->window_was_full = true;
		lane->window_full++;
	}
	return next_ns;
}

void lane_deinit(struct lane *lane)
{
	schedule_deinit(&lane->schedule);
	plan_deinit(&lane->plan);
}

int64_t lane_next_due_ns(struct lane *lane, int64_t now_ns)
{
	struct plan *plan = &lane->plan;

	if (plan->dependent)
		return look_ahead(lane, now_ns);
	if (!plan_has_row(plan)) {
		mark_missing(lane, now_ns);
		return LANE_NOTHING;
	}
	end_starving(lane, plan->current->due_ns[plan->next], now_ns);
	return plan->current->due_ns[plan->next];
}

void lane_peek(const struct lane *lane, int16_t *target, int8_t *op, int64_t *offset_bytes, int64_t *length_bytes)
{
	const struct plan_block *block = lane->plan.current;
	const struct plan_row *row;

	if (lane->plan.dependent) {
		row = &schedule_first(&lane->schedule)->row;
		*target = row->target;
		*op = row->op;
		*offset_bytes = row->offset_bytes;
		*length_bytes = row->length_bytes;
		return;
	}
	*target = block->target ? block->target[lane->plan.next] : 0;
	*op = block->op[lane->plan.next];
	*offset_bytes = block->offset_bytes[lane->plan.next];
	*length_bytes = block->length_bytes[lane->plan.next];
}

unsigned lane_depth(const struct lane *lane)
{
	const struct plan *plan = &lane->plan;
	unsigned limit = !plan->dependent && plan->current->in_flight ? (unsigned)plan->current->in_flight[plan->next] : 0;

	return limit && limit < lane->depth ? limit : lane->depth;
}

void lane_take(struct lane *lane, struct io *io)
{
	lane->outstanding++;
	if (!lane->plan.dependent) {
		io->row = plan_row_at(lane->plan.current, lane->plan.next++);
		io->flags &= ~RUN_FLAGS;
		io->host_delay_ns = 0;
	} else {
		const struct waiting_row *waiting = schedule_first(&lane->schedule);

		io->row = waiting->row;
		io->ordinal = waiting->ordinal;
		io->host_delay_ns = waiting->row.due_ns - waiting->undelayed_due_ns;
		io->flags = (io->flags & ~RUN_FLAGS) | (waiting->dependent ? FLAG_ANCHORED : 0);
		lane->dependent += waiting->dependent;
		schedule_pop(&lane->schedule);
	}
}

bool lane_exhausted(struct lane *lane)
{
	return plan_exhausted(&lane->plan) && (!lane->plan.dependent || schedule_empty(&lane->schedule));
}
