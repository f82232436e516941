/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "outlook.h"

/*
 * How long to look for a completion before sleeping for one, where rows have
 * deadlines: to be woken takes time that the latency would include.
 */
#define LOOK_NS 20000ll

/*
 * Whether the lane has room for its next row, and the drive's queue for one
 * with a deadline. What finds that queue full is not taken by the drive:
 * io_uring hands it to threads of its own, which send it later and in another
 * order. So it waits here, and is known to be late because of the drive. At a
 * fixed depth the depth that was asked for is kept.
 */
static bool has_room(const struct engine *engine, const struct lane *lane, int64_t due_ns)
{
	const struct target *target;
	int64_t length_bytes;
	int16_t which;
	int8_t op;

	if (lane->outstanding == lane->depth)
		return false;
	if (due_ns < 0)
		return true;
	lane_peek(lane, &which, &op, &length_bytes);
	target = &engine->targets[which];
	return !target->queue_requests || !engine->requests[which] ||
	       engine->requests[which] + target_requests(target, op, length_bytes) <= target->queue_requests;
}

/* Whether rows of the lane may still be issued at that time. */
static bool is_open(const struct engine *engine, const struct lane *lane, int64_t at_ns)
{
	return at_ns <= engine->stop_ns && (!lane->background || atomic_load(engine->foreground));
}

/* The deadline of its next row that will be issued in time; LANE_NOTHING where there is none now. */
static int64_t next_due_ns(const struct engine *engine, struct lane *lane, int64_t now_ns)
{
	int64_t due_ns;

	if (!is_open(engine, lane, now_ns))
		return LANE_NOTHING;
	due_ns = lane_next_due_ns(lane, now_ns);
	return due_ns <= engine->stop_ns ? due_ns : LANE_NOTHING;
}

/*
 * Nothing of the lane can be issued any more, whatever completes besides its
 * own rows: those with deadlines come in their order, and of those that wait
 * for others the first is known.
 */
static bool has_ended(const struct engine *engine, struct lane *lane, int64_t now_ns)
{
	int64_t due_ns;

	if (lane_exhausted(lane) || !is_open(engine, lane, now_ns))
		return true;
	due_ns = lane_next_due_ns(lane, now_ns);
	return due_ns != LANE_NOTHING && due_ns > engine->stop_ns && !lane->starving;
}

void outlook_finish_lanes(struct engine *engine)
{
	for (unsigned i = 0; i < engine->lane_count; i++) {
		struct lane *lane = &engine->lanes[i];

		if (lane->finished || lane->background || lane->outstanding || !lane_exhausted(lane))
			continue;
		lane->finished = true;
		atomic_fetch_sub(engine->foreground, 1);
	}
}

bool outlook_was_cut_off(struct engine *engine)
{
	for (unsigned i = 0; i < engine->lane_count; i++) {
		struct lane *lane = &engine->lanes[i];

		if (!lane_exhausted(lane) && (!lane->background || atomic_load(engine->foreground)))
			return true;
	}
	return false;
}

struct lane *outlook_choose_lane(struct engine *engine, int64_t now_ns)
{
	struct lane *timed = NULL, *untimed = NULL;
	int64_t earliest_ns = now_ns;
	unsigned at = engine->next_lane;

	for (unsigned i = 0; i < engine->lane_count; i++) {
		struct lane *lane = &engine->lanes[at];
		int64_t due_ns = next_due_ns(engine, lane, now_ns);

		at = at + 1 == engine->lane_count ? 0 : at + 1;
		if (due_ns > now_ns)
			continue;
		if (!has_room(engine, lane, due_ns)) {
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
	engine->next_lane = untimed + 1 == engine->lanes + engine->lane_count ? 0 : untimed + 1 - engine->lanes;
	return untimed;
}

struct outlook outlook_now(struct engine *engine, int64_t now_ns)
{
	struct outlook outlook = { .due_ns = LANE_NOTHING, .ended = true };

	for (unsigned i = 0; i < engine->lane_count; i++) {
		struct lane *lane = &engine->lanes[i];
		int64_t due_ns = next_due_ns(engine, lane, now_ns);
		bool ended = due_ns == LANE_NOTHING && has_ended(engine, lane, now_ns);

		outlook.starving |= lane->starving && !ended;
		outlook.ended &= ended;
		if (due_ns <= now_ns && !has_room(engine, lane, due_ns)) {
			outlook.full = true;
			outlook.behind |= due_ns >= 0;
		} else if (due_ns < outlook.due_ns) {
			outlook.due_ns = due_ns;
		}
	}
	return outlook;
}

int64_t outlook_idle_ns(const struct engine *engine, const struct outlook *outlook, int64_t now_ns)
{
	int64_t longest_ns = outlook->starving ? LOOK_AGAIN_NS : NAP_NS;

	if (outlook->due_ns == LANE_NOTHING)
		return outlook->ended && !engine_outstanding(engine) ? 0 : longest_ns;
	if (outlook->due_ns <= now_ns)
		return 0;
	return sleep_before(outlook->due_ns, now_ns, engine->spin_ns, longest_ns);
}

bool outlook_looks(const struct engine *engine, const struct outlook *outlook, int64_t now_ns, int64_t active_ns)
{
	return engine_outstanding(engine) && !engine->stalled && now_ns - active_ns < LOOK_NS && !outlook->full &&
	       !outlook->ended && outlook->due_ns > now_ns;
}
