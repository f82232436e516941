/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "engine.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "clock.h"

/* The longest sleep: how late a signal that came just before it is seen. */
#define NAP_NS (50 * NS_PER_MS)
/*
 * How long to look for a completion before sleeping for one, where rows have
 * deadlines: to be woken takes time that the latency would include.
 */
#define LOOK_NS 20000ll
/* How long outstanding I/O may take once a run is to end. */
#define DRAIN_NS (30 * NS_PER_S)
/* While the plan or room for records is missing: how often to look. */
#define LOOK_AGAIN_NS 50000ll

int engine_init(struct engine *engine)
{
	engine->depth = 0;
	for (unsigned i = 0; i < engine->lane_count; i++) {
		int err = lane_init(&engine->lanes[i]);

		if (err)
			return err;
		engine->depth += engine->lanes[i].depth;
		engine->watches_hazards |= engine->lanes[i].plan.captured;
	}
	engine->ios = calloc(engine->depth, sizeof(*engine->ios));
	engine->free_slots = calloc(engine->depth, sizeof(*engine->free_slots));
	if (!engine->ios || !engine->free_slots)
		return -ENOMEM;
	for (uint32_t slot = 0; slot < engine->depth; slot++) {
		engine->ios[slot].pending = 1; /* touched */
		engine->free_slots[slot] = engine->depth - 1 - slot;
	}
	engine->free_count = engine->depth;
	totals_init(&engine->totals);
	return engine->watches_hazards ? hazard_init(&engine->hazard, engine->ios, engine->depth) : 0;
}

static int64_t run_time_ns(const struct engine *engine)
{
	return monotonic_ns() - engine->start_ns;
}

static uint32_t outstanding(const struct engine *engine)
{
	return engine->depth - engine->free_count;
}

/* The lane's next row, into a slot; or counted as dropped, where its target can't carry it out. */
static void prepare_row(struct engine *engine, struct lane *lane, int64_t now_ns)
{
	uint32_t slot = engine->free_slots[engine->free_count - 1];
	struct io *io = &engine->ios[slot];
	const struct target *target;
	enum fidelity fidelity;

	lane_take(lane, io);
	target = &engine->targets[io->target];
	fidelity = target_fidelity(target, io->op, io->flags);
	if (fidelity == DROPPED) {
		engine->totals.dropped[io->op]++;
		/* Who waits for it must not wait for ever. */
		io->submit_ns = now_ns;
		if (lane->plan.anchored)
			schedule_submitted(&lane->schedule, io->ordinal, now_ns);
		lane_completed(lane, io, now_ns);
		return;
	}
	engine->free_count--;
	engine->totals.altered[fidelity]++;
	io->lane = lane - engine->lanes;
	engine->totals.split += target_splits(target, io->op, io->length_bytes);
	if (io->op == OP_WRITE) {
		engine->writing_bytes += row_at_once_bytes(io->length_bytes);
		engine->totals.shared_payload += engine->writing_bytes > engine->payload_bytes;
	}
	if (io->op == OP_WRITE_ZEROES)
		engine->totals.write_zeroes_of[io->target]++;
	if (engine->watches_hazards && hazard_add(&engine->hazard, slot)) {
		io->flags |= FLAG_HAZARD;
		engine->totals.hazards++;
	}
	engine->issuer->queue(engine->issuer, io, slot);
	engine->batch[engine->batch_count++] = slot;
}

/*
 * The lane whose row goes next: of those with a deadline that has come, the
 * earliest; then those without, in turn, so that none of them starves another
 * or keeps one with a deadline waiting. NULL: none can go.
 */
static struct lane *choose_lane(struct engine *engine, int64_t now_ns)
{
	struct lane *timed = NULL, *untimed = NULL;
	int64_t earliest_ns = now_ns;
	unsigned at = engine->next_lane;

	for (unsigned i = 0; i < engine->lane_count; i++) {
		struct lane *lane = &engine->lanes[at];
		int64_t due_ns = lane_next_due_ns(lane, now_ns);

		at = at + 1 == engine->lane_count ? 0 : at + 1;
		if (due_ns > now_ns)
			continue;
		if (lane->outstanding == lane->depth) {
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

/* Prepares what is due. */
static void prepare_due(struct engine *engine, int64_t now_ns)
{
	while (engine->batch_count < BATCH_ROWS) {
		struct lane *lane = choose_lane(engine, now_ns);

		if (!lane)
			return;
		prepare_row(engine, lane, now_ns);
	}
}

static void count_lateness(struct engine *engine, const struct lane *lane, struct io *io)
{
	struct totals *totals = &engine->totals;
	int64_t lateness_ns = io->submit_ns - io->due_ns;

	if (io->due_ns < 0)
		return;
	if (io->due_ns > totals->plan_ns)
		totals->plan_ns = io->due_ns;
	if (lateness_ns < totals->min_lateness_ns)
		totals->min_lateness_ns = lateness_ns;
	if (lateness_ns > totals->max_lateness_ns)
		totals->max_lateness_ns = lateness_ns;
	if (io->due_ns <= lane->queue_was_full_ns) {
		io->flags |= FLAG_QUEUE_FULL;
		totals->queue_full++;
	} else if (lateness_ns > totals->max_host_lateness_ns) {
		totals->max_host_lateness_ns = lateness_ns;
	}
}

/* Sends what is prepared, then may sleep for a completion. */
static void submit_batch(struct engine *engine, int64_t wait_ns)
{
	int64_t submit_ns = engine->batch_count ? run_time_ns(engine) : 0;
	int cpu = sched_getcpu(), err;

	for (unsigned i = 0; i < engine->batch_count; i++) {
		engine->ios[engine->batch[i]].submit_ns = submit_ns;
		engine->ios[engine->batch[i]].cpu = cpu;
	}
	err = engine->issuer->submit(engine->issuer, wait_ns);
	/* Not taken: it goes out, with a new stamp, when completions have made room. */
	if (err == -EAGAIN)
		return;
	if (err) {
		stop_ask(engine->stop, STOP_FAILED);
		engine->totals.first_error = err;
		return;
	}
	for (unsigned i = 0; i < engine->batch_count; i++) {
		struct io *io = &engine->ios[engine->batch[i]];
		struct lane *lane = &engine->lanes[io->lane];

		count_lateness(engine, lane, io);
		lane_submitted(lane, io);
		engine->totals.issued[io->op]++;
	}
	engine->batch_count = 0;
	if (outstanding(engine) > engine->totals.max_outstanding)
		engine->totals.max_outstanding = outstanding(engine);
}

static void count_result(struct engine *engine, const struct io *io)
{
	struct totals *totals = &engine->totals;

	totals->completed[io->op]++;
	if (io->op == OP_WRITE)
		engine->writing_bytes -= row_at_once_bytes(io->length_bytes);
	if (!io->status) {
		totals->bytes[io->op] += io->length_bytes;
		engine->errors_in_a_row = 0;
		return;
	}
	if (!totals->errors++) {
		totals->first_error = io->status;
		totals->first_error_row = io->source_row;
	}
	if (io->status == -ENODEV || io->status == -ENXIO)
		stop_ask(engine->stop, STOP_DEVICE_LOST);
	else if (++engine->errors_in_a_row == engine->max_errors)
		stop_ask(engine->stop, STOP_ERRORS);
}

static void record(struct record_block *block, const struct io *io, int64_t complete_ns)
{
	uint32_t row = block->rows++;

	block->due_ns[row] = io->due_ns;
	block->submit_ns[row] = io->submit_ns;
	block->complete_ns[row] = complete_ns;
	block->offset_bytes[row] = io->offset_bytes;
	block->length_bytes[row] = io->length_bytes;
	block->op[row] = io->op;
	block->flags[row] = io->flags;
	block->cpu[row] = io->cpu;
	block->status[row] = io->status;
	block->stream[row] = io->stream;
	block->burst[row] = io->burst;
	block->source_row[row] = io->source_row;
	block->target[row] = io->target;
}

/* Takes what has completed. True: something had. */
static bool take_completions(struct engine *engine)
{
	struct record_block *block = records_room(engine->records);
	uint32_t slots[REAP_ROWS];
	unsigned room = REAP_ROWS, count;
	int64_t now_ns;

	if (!block) {
		engine->totals.record_stalls += !engine->stalled;
		engine->stalled = true;
		sleep_ns(LOOK_AGAIN_NS);
		return false;
	}
	engine->stalled = false;
	if (room > RECORD_BLOCK_ROWS - block->rows)
		room = RECORD_BLOCK_ROWS - block->rows;
	count = engine->issuer->reap(engine->issuer, engine->ios, slots, room);
	if (!count)
		return false;
	now_ns = run_time_ns(engine);
	for (unsigned i = 0; i < count; i++) {
		struct io *io = &engine->ios[slots[i]];

		record(block, io, now_ns);
		count_result(engine, io);
		if (engine->watches_hazards)
			hazard_remove(&engine->hazard, slots[i]);
		lane_completed(&engine->lanes[io->lane], io, now_ns);
		engine->free_slots[engine->free_count++] = slots[i];
	}
	engine->totals.wall_ns = now_ns;
	records_hand_over(engine->records, now_ns, false);
	return true;
}

static void publish(struct engine *engine, int64_t now_ns)
{
	struct progress *progress = &engine->records->progress;
	int64_t late_ns = engine->totals.max_lateness_ns;

	progress_set(&progress->elapsed_ns, now_ns);
	progress_set(&progress->submitted, totals_sum(engine->totals.issued));
	progress_set(&progress->completed, totals_sum(engine->totals.completed));
	progress_set(&progress->errors, engine->totals.errors);
	progress_set(&progress->outstanding, outstanding(engine));
	progress_set(&progress->max_lateness_ns, late_ns == INT64_MIN ? 0 : late_ns);
}

/* When the next row could go, and whether rows or room to know them are missing. */
struct outlook {
	int64_t due_ns; /* of the next row that a lane has room for; LANE_NOTHING */
	bool starving;  /* a plan is not there yet */
	bool full;      /* a row is due, and its lane's depth reached */
	bool ended;     /* nothing is left to issue */
};

static struct outlook look_out(struct engine *engine, int64_t now_ns)
{
	struct outlook outlook = { .due_ns = LANE_NOTHING, .ended = true };

	for (unsigned i = 0; i < engine->lane_count; i++) {
		struct lane *lane = &engine->lanes[i];
		int64_t due_ns = lane_next_due_ns(lane, now_ns);

		outlook.starving |= lane->starving;
		outlook.ended &= due_ns == LANE_NOTHING && lane_exhausted(lane);
		if (lane->outstanding == lane->depth)
			outlook.full |= due_ns <= now_ns;
		else if (due_ns < outlook.due_ns)
			outlook.due_ns = due_ns;
	}
	return outlook;
}

/*
 * How long there is nothing to do but to wait for a completion: 0 means spin
 * or go on, because a deadline is near or a row can be issued.
 */
static int64_t idle_ns(const struct engine *engine, const struct outlook *outlook, int64_t now_ns)
{
	int64_t longest_ns = outlook->starving ? LOOK_AGAIN_NS : NAP_NS;

	if (outlook->due_ns == LANE_NOTHING)
		return outlook->ended && !outstanding(engine) ? 0 : longest_ns;
	if (outlook->due_ns <= now_ns)
		return 0;
	return sleep_before(outlook->due_ns, now_ns, engine->spin_ns, longest_ns);
}

/*
 * Whether to look for a completion instead of sleeping for it: where times
 * count, and not for long. With its queue full the drive needs the processor
 * more than we do.
 */
static bool looks(const struct engine *engine, const struct outlook *outlook, int64_t now_ns, int64_t active_ns)
{
	return outstanding(engine) && !engine->stalled && now_ns - active_ns < LOOK_NS && !outlook->full &&
	       !outlook->ended && outlook->due_ns > now_ns;
}

static void issue_lanes(struct engine *engine)
{
	int64_t active_ns = INT64_MIN / 2;

	while (!stop_asked(engine->stop)) {
		int64_t now_ns = run_time_ns(engine), wait_ns;
		struct outlook outlook;

		if (!engine->batch_count)
			prepare_due(engine, now_ns);
		if (engine->batch_count) {
			/* With the queue full the next thing to happen is a completion: one call does both. */
			submit_batch(engine, engine->free_count ? 0 : NAP_NS);
			publish(engine, now_ns);
			take_completions(engine);
			active_ns = now_ns;
			continue;
		}
		if (take_completions(engine)) {
			active_ns = now_ns;
			continue;
		}
		outlook = look_out(engine, now_ns);
		if (looks(engine, &outlook, now_ns, active_ns)) {
			spin_pause();
			continue;
		}
		if (outlook.ended && !outstanding(engine))
			return;
		now_ns = run_time_ns(engine);
		publish(engine, now_ns);
		records_hand_over(engine->records, now_ns, false);
		if (engine->stalled)
			continue;
		wait_ns = idle_ns(engine, &outlook, now_ns);
		if (wait_ns > 0)
			submit_batch(engine, wait_ns);
		else
			spin_pause();
	}
}

/* Waits for what is outstanding, within bounds: a drive that never answers must not hold the run's end. */
static void drain(struct engine *engine)
{
	int64_t until_ns = monotonic_ns() + DRAIN_NS;

	/* Prepared, but the kernel has not taken it. */
	if (engine->batch_count)
		submit_batch(engine, 0);
	while (outstanding(engine) > engine->batch_count && monotonic_ns() < until_ns)
		if (!take_completions(engine) && !engine->stalled)
			submit_batch(engine, NAP_NS);
	engine->totals.abandoned = outstanding(engine);
	publish(engine, run_time_ns(engine));
}

void engine_run(struct engine *engine, int64_t start_ns)
{
	struct totals *totals = &engine->totals;
	struct rusage before, after;

	getrusage(RUSAGE_THREAD, &before);
	engine->start_ns = start_ns;
	issue_lanes(engine);
	drain(engine);
	getrusage(RUSAGE_THREAD, &after);
	totals->involuntary_switches = after.ru_nivcsw - before.ru_nivcsw;
	for (unsigned i = 0; i < engine->lane_count; i++) {
		totals->underruns += engine->lanes[i].underruns;
		totals->window_full += engine->lanes[i].window_full;
		totals->anchored += engine->lanes[i].anchored;
	}
	if (!outstanding(engine))
		engine->issuer->release(engine->issuer);
}
