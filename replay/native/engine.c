/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "engine.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "clock.h"
#include "host.h"
#include "outlook.h"

/* How often a thread's priority is reviewed, and the share of that time that it must have slept to have it. */
#define REVIEW_NS (20 * NS_PER_MS)
#define KEEPS_REALTIME_NS (REVIEW_NS / 10)
#define REGAINS_REALTIME_NS (REVIEW_NS / 4)
/* Longer than any run. */
#define FAR_NS (INT64_MAX / 4)
/* How long outstanding I/O may take once a run is to end. */
#define DRAIN_NS (30 * NS_PER_S)

int engine_init(struct engine *engine)
{
	engine->depth = 0;
	for (unsigned i = 0; i < engine->lane_count; i++) {
		int err = lane_init(&engine->lanes[i]);

		if (err)
			return err;
		engine->lanes[i].watch = &engine->watch; /* which is off on a virtual clock */
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
	return run_clock_ns(&engine->clock);
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
	io->requests = target_requests(target, io->op, io->length_bytes);
	engine->requests[io->target] += io->requests;
	engine->totals.split += io->requests > 1;
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

/* Prepares what is due. */
static void prepare_due(struct engine *engine, int64_t now_ns)
{
	while (engine->batch_count < BATCH_ROWS) {
		struct lane *lane = outlook_choose_lane(engine, now_ns);

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
	/* A queue that what had piled up here has filled says nothing of the drive. */
	if (io->due_ns <= lane->queue_was_full_ns && !watch_explains(&engine->watch, lateness_ns)) {
		io->flags |= FLAG_QUEUE_FULL;
		totals->queue_full++;
		return;
	}
	if (lateness_ns > totals->max_host_lateness_ns)
		totals->max_host_lateness_ns = lateness_ns;
	if (lateness_ns > WATCH_TOLD_NS)
		watch_late(&engine->watch, io->due_ns, io->submit_ns);
}

/* Sends what is prepared, stamped with submit_ns, then may sleep for a completion. */
static void submit_batch(struct engine *engine, int64_t submit_ns, int64_t wait_ns)
{
	int cpu = engine->batch_count ? sched_getcpu() : -1, err;

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
	if (engine_outstanding(engine) > engine->totals.max_outstanding)
		engine->totals.max_outstanding = engine_outstanding(engine);
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
		watch_held_up(&engine->watch, PART_RECORDS, run_time_ns(engine));
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
		engine->requests[io->target] -= io->requests;
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
	progress_set(&progress->outstanding, engine_outstanding(engine));
	progress_set(&progress->max_lateness_ns, late_ns == INT64_MIN ? 0 : late_ns);
}

/* Tells the watch that the loop rests for so long; 0: it spins until the next deadline. */
static void rest(struct engine *engine, const struct outlook *outlook, int64_t now_ns, int64_t wait_ns)
{
	if (wait_ns > 0)
		watch_rest(&engine->watch, now_ns, now_ns + wait_ns, outlook->behind ? REST_SLEEPS_BEHIND : REST_SLEEPS);
	else if (outlook->due_ns != LANE_NOTHING)
		watch_rest(&engine->watch, now_ns, outlook->due_ns, REST_SPINS);
}

static void sleep_for_completion(struct engine *engine, int64_t now_ns, int64_t wait_ns)
{
	submit_batch(engine, 0, wait_ns);
	engine->slept_ns += run_time_ns(engine) - now_ns;
}

/*
 * A thread with real-time priority that hardly sleeps keeps others from its
 * processor, until the kernel stops it for some 40 ms in one piece to give them
 * their share. Ahead of that it goes back to being the first among equals, who
 * then get theirs in small pieces.
 */
static void review_priority(struct engine *engine, int64_t now_ns)
{
	if (!engine->realtime_given_up && engine->slept_ns < KEEPS_REALTIME_NS) {
		engine->realtime_given_up = true;
		engine->totals.realtime_given_up++;
		host_take_priority(false);
	} else if (engine->realtime_given_up && engine->slept_ns > REGAINS_REALTIME_NS) {
		engine->realtime_given_up = !host_take_priority(true);
	}
	engine->reviewed_ns = now_ns;
	engine->slept_ns = 0;
}

/*
 * A virtual clock moves on to what happens next, once all rows are known that
 * could come before. It stands while a plan is not there yet: that takes time of
 * this machine, and none of the drive.
 */
static void move_clock(struct engine *engine, const struct outlook *outlook, int64_t now_ns)
{
	if (outlook->starving)
		sleep_ns(LOOK_AGAIN_NS);
	else if (outlook->due_ns != LANE_NOTHING)
		submit_batch(engine, now_ns, outlook->due_ns - now_ns);
	else if (engine_outstanding(engine))
		submit_batch(engine, now_ns, FAR_NS);
}

static void issue_lanes(struct engine *engine)
{
	int64_t active_ns = INT64_MIN / 2;

	while (!stop_asked(engine->stop)) {
		int64_t now_ns = run_time_ns(engine), wait_ns;
		struct outlook outlook;

		watch_turn(&engine->watch, now_ns);
		if (engine->realtime && now_ns - engine->reviewed_ns > REVIEW_NS)
			review_priority(engine, now_ns);
		if (engine->any_background)
			outlook_finish_lanes(engine);
		if (!engine->batch_count)
			prepare_due(engine, now_ns);
		if (engine->batch_count) {
			/* With the queue full the next thing to happen is a completion: one call does both. */
			if (!engine->free_count && !engine->clock.is_virtual) {
				outlook = outlook_now(engine, now_ns);
				rest(engine, &outlook, now_ns, NAP_NS);
			}
			submit_batch(engine, now_ns, engine->free_count || engine->clock.is_virtual ? 0 : NAP_NS);
			publish(engine, now_ns);
			take_completions(engine);
			active_ns = now_ns;
			continue;
		}
		if (take_completions(engine)) {
			active_ns = now_ns;
			continue;
		}
		outlook = outlook_now(engine, now_ns);
		if (!engine->clock.is_virtual && outlook_looks(engine, &outlook, now_ns, active_ns)) {
			spin_pause();
			continue;
		}
		if (outlook.ended && !engine_outstanding(engine))
			return;
		now_ns = run_time_ns(engine);
		publish(engine, now_ns);
		records_hand_over(engine->records, now_ns, false);
		if (engine->stalled)
			continue;
		if (engine->clock.is_virtual) {
			move_clock(engine, &outlook, now_ns);
			continue;
		}
		wait_ns = outlook_idle_ns(engine, &outlook, now_ns);
		rest(engine, &outlook, now_ns, wait_ns);
		if (wait_ns > 0)
			sleep_for_completion(engine, now_ns, wait_ns);
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
		submit_batch(engine, run_time_ns(engine), 0);
	while (engine_outstanding(engine) > engine->batch_count && monotonic_ns() < until_ns)
		if (!take_completions(engine) && !engine->stalled)
			submit_batch(engine, run_time_ns(engine), NAP_NS);
	engine->totals.abandoned = engine_outstanding(engine);
	publish(engine, run_time_ns(engine));
}

/* The clock stood meanwhile: nothing was late by them. */
static void forget_delays(struct engine *engine)
{
	engine->totals.record_stalls = 0;
	for (unsigned i = 0; i < engine->lane_count; i++)
		engine->lanes[i].underruns = 0;
}

void engine_run(struct engine *engine, int64_t start_ns)
{
	struct totals *totals = &engine->totals;
	struct rusage before, after;

	getrusage(RUSAGE_THREAD, &before);
	engine->clock.start_ns = start_ns;
	progress_set(&engine->records->progress.start_monotonic_ns, start_ns);
	watch_start(&engine->watch, start_ns);
	issue_lanes(engine);
	outlook_finish_lanes(engine);
	watch_end(&engine->watch, run_time_ns(engine));
	drain(engine);
	getrusage(RUSAGE_THREAD, &after);
	if (engine->clock.is_virtual)
		forget_delays(engine);
	totals->involuntary_switches = after.ru_nivcsw - before.ru_nivcsw;
	for (unsigned i = 0; i < engine->lane_count; i++) {
		totals->underruns += engine->lanes[i].underruns;
		totals->window_full += engine->lanes[i].window_full;
		totals->anchored += engine->lanes[i].anchored;
	}
	totals->time_limit = !stop_asked(engine->stop) && engine->stop_ns != INT64_MAX && outlook_was_cut_off(engine);
	if (!engine_outstanding(engine))
		engine->issuer->release(engine->issuer);
}
