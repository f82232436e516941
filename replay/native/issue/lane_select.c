/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "lane_select.h"

/*
 * Whether the lane's depth, the buffers, the row's zone and, for a row with a deadline, the drive's queue have room.
 * io_uring would hand a row that finds the queue full to its own threads, which submit it later and in another order. So
 * such a row waits here and counts as late because of the drive. A lane without deadlines keeps its depth whatever the
 * queue is.
 * Threads that check at the same time may exceed the limit by a batch each, which its margin covers.
 */
static bool has_room(const struct lane_select *select, struct lane *lane, int64_t due_ns)
{
	const struct target *target;
	int64_t offset_bytes, length_bytes, in_flight;
	int16_t index;
	int8_t op;

	if (lane->outstanding >= lane_depth(lane))
		return false;
	lane_peek(lane, &index, &op, &offset_bytes, &length_bytes);
	if (!zone_guard_allows(&select->zone_guard, index, op, offset_bytes))
		return false;
	if (op_is_write(op) && select->payload && !payload_has_room(select->payload, row_buffer_bytes(length_bytes))) {
		lane->buffers_were_full = true;
		return false;
	}
	if (due_ns < 0)
		return true;
	target = &select->targets[index];
	if (!target->queue_requests)
		return true;
	in_flight = atomic_load_explicit(&select->loads[index].requests, memory_order_relaxed);
	return !in_flight || in_flight + target_requests(target, op, length_bytes) <= target->queue_requests;
}

/* Whether stop_ns and the foreground lanes still allow rows of this lane. */
static bool is_open(const struct lane_select *select, const struct lane *lane, int64_t at_ns)
{
	return at_ns <= select->stop_ns && (!lane->background || atomic_load(select->foreground));
}

/* The deadline of the lane's next row; LANE_NOTHING where none can be issued now or before stop_ns. */
static int64_t next_due_ns(const struct lane_select *select, struct lane *lane, int64_t now_ns)
{
	int64_t due_ns;

	if (!is_open(select, lane, now_ns))
		return LANE_NOTHING;
	due_ns = lane_next_due_ns(lane, now_ns);
	if (due_ns < lane->start_ns && now_ns < lane->start_ns)
		due_ns = lane->start_ns;
	return due_ns <= select->stop_ns ? due_ns : LANE_NOTHING;
}

/* Whether no completion can make another row of the lane issuable: deadlines come in order, or the first is known. */
static bool has_ended(const struct lane_select *select, struct lane *lane, int64_t now_ns)
{
	int64_t due_ns;

	if (lane_exhausted(lane) || !is_open(select, lane, now_ns))
		return true;
	due_ns = lane_next_due_ns(lane, now_ns);
	return due_ns != LANE_NOTHING && due_ns > select->stop_ns && !lane->starving;
}

void lane_select_finish(struct lane_select *select)
{
	for (unsigned i = 0; i < select->lane_count; i++) {
		struct lane *lane = &select->lanes[i];

		if (lane->finished || lane->background || lane->outstanding || !lane_exhausted(lane))
			continue;
		lane->finished = true;
		atomic_fetch_sub(select->foreground, 1);
	}
}

bool lane_select_was_cut_off(struct lane_select *select)
{
	for (unsigned i = 0; i < select->lane_count; i++) {
		struct lane *lane = &select->lanes[i];

		if (!lane_exhausted(lane) && (!lane->background || atomic_load(select->foreground)))
			return true;
	}
	return false;
}

struct lane *lane_select_next(struct lane_select *select, int64_t now_ns)
{
	struct lane *timed = NULL, *untimed = NULL;
	int64_t earliest_ns = now_ns;
	unsigned at = select->next_lane;

	for (unsigned i = 0; i < select->lane_count; i++) {
		struct lane *lane = &select->lanes[at];
		int64_t due_ns = next_due_ns(select, lane, now_ns);

		at = at + 1 == select->lane_count ? 0 : at + 1;
		if (due_ns > now_ns)
			continue;
		if (!has_room(select, lane, due_ns)) {
			lane->queue_was_full_ns = now_ns;
		} else if (due_ns >= 0 && (!timed || due_ns < earliest_ns)) {
			timed = lane;
			earliest_ns = due_ns;
		} else if (due_ns < 0 && !untimed) {
			untimed = lane;
		}
	}
	if (timed || !untimed)
		return timed;
	at = (unsigned)(untimed - select->lanes) + 1;
	select->next_lane = at == select->lane_count ? 0 : at;
	return untimed;
}

struct lane_summary lane_select_summary(struct lane_select *select, int64_t now_ns)
{
	struct lane_summary summary = { .due_ns = LANE_NOTHING, .ended = true };

	for (unsigned i = 0; i < select->lane_count; i++) {
		struct lane *lane = &select->lanes[i];
		int64_t due_ns = next_due_ns(select, lane, now_ns);
		bool ended = due_ns == LANE_NOTHING && has_ended(select, lane, now_ns);

		summary.starving |= lane->starving && !ended;
		summary.ended &= ended;
		if (due_ns <= now_ns && !has_room(select, lane, due_ns)) {
			summary.full = true;
			summary.behind |= due_ns >= 0;
		} else if (due_ns < summary.due_ns) {
			summary.due_ns = due_ns;
		}
	}
	return summary;
}

int64_t lane_select_idle_ns(const struct lane_select *select, const struct lane_summary *summary, int64_t now_ns,
			    bool outstanding)
{
	int64_t max_ns = summary->starving || (summary->full && select->shares_loads) ? RETRY_NS : IDLE_MAX_NS;

	if (summary->due_ns == LANE_NOTHING)
		return summary->ended && !outstanding ? 0 : max_ns;
	if (summary->due_ns <= now_ns)
		return 0;
	return sleep_before(summary->due_ns, now_ns, SPIN_NS, max_ns);
}
