/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "engine.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "run/host.h"
#include "run/memory.h"

/* A completion is polled for so long before the thread sleeps: a wake-up would add its time to the latency. */
#define POLL_NS 20000ll
/* How often the priority is reviewed, and how much of that time the thread must sleep to keep or regain it. */
#define REVIEW_NS (20 * NS_PER_MS)
#define KEEPS_REALTIME_NS (REVIEW_NS / 10)
#define REGAINS_REALTIME_NS (REVIEW_NS / 4)
/* Longer than any run. */
#define FAR_NS (INT64_MAX / 4)
/* How long the end of a run waits for outstanding I/O that changes no data. */
#define DRAIN_NS (30 * NS_PER_S)

int engine_init(struct engine *engine)
{
	for (unsigned i = 0; i < engine->select.lane_count; i++) {
		struct lane *lane = &engine->select.lanes[i];
		int err = lane_init(lane);

		if (err)
			return err;
		lane->monitor = &engine->monitor;
		engine->depth += lane->depth;
		engine->counts_hazards |= lane->plan.captured;
	}
	engine->ios = alloc_touched(engine->depth, sizeof(*engine->ios));
	engine->free_slots = alloc_touched(engine->depth, sizeof(*engine->free_slots));
	if (!engine->ios || !engine->free_slots)
		return -ENOMEM;
	for (uint32_t slot = 0; slot < engine->depth; slot++)
		engine->free_slots[slot] = engine->depth - 1 - slot;
	engine->free_count = engine->depth;
	totals_init(&engine->totals);
	if (zone_guard_init(&engine->select.zone_guard, engine->select.targets, engine->records->target_count))
		return -ENOMEM;
	return engine->counts_hazards ? hazard_init(&engine->hazard, engine->ios, engine->depth) : 0;
}

void engine_deinit(struct engine *engine)
{
	if (engine_outstanding(engine))
		return;
	if (engine->issuer)
		engine->issuer->deinit(engine->issuer);
	for (unsigned i = 0; i < engine->select.lane_count; i++)
		lane_deinit(&engine->select.lanes[i]);
	hazard_deinit(&engine->hazard);
	zone_guard_deinit(&engine->select.zone_guard);
	stall_monitor_deinit(&engine->monitor);
	free(engine->ios);
	free(engine->free_slots);
}

static int64_t run_time_ns(const struct engine *engine)
{
	return run_clock_ns(&engine->clock);
}

static bool any_changing(const struct engine *engine)
{
	for (unsigned i = 0; i < MAX_TARGETS; i++)
		if (engine->changing[i])
			return true;
	return false;
}

/* Ends a row that is not issued. Rows that depend on it go on. */
static void skip_row(struct lane *lane, struct io *io, int64_t now_ns)
{
	io->submit_ns = now_ns;
	lane_skipped(lane, io);
}

/* Moves the lane's next row into a slot. A row that its target cannot execute counts as dropped. */
static void prepare_row(struct engine *engine, struct lane *lane, int64_t now_ns)
{
	uint32_t slot = engine->free_slots[engine->free_count - 1];
	struct io *io = &engine->ios[slot];
	const struct target *target;
	enum fidelity fidelity;
	int32_t planned;

	lane_take(lane, io);
	if (io->flags & PLAN_OMITTED) {
		skip_row(lane, io, io->due_ns);
		return;
	}
	target = &engine->select.targets[io->target];
	fidelity = target_fidelity(target, io->op, io->flags);
	if (fidelity == DROPPED) {
		engine->totals.dropped[io->op]++;
		skip_row(lane, io, now_ns);
		return;
	}
	/* The record has the hint and the atomicity that the drive gets. */
	planned = io->flags;
	io->flags = target_write_flags(target, io->op, planned, io->offset_bytes, io->length_bytes);
	if (fidelity == AS_PLANNED && io->flags != planned)
		fidelity = (io->flags ^ planned) & FLAG_ATOMIC ? ALTERED_ATOMIC : ALTERED_WRITE_HINT;
	engine->free_count--;
	engine->totals.altered[fidelity]++;
	io->lane = (uint16_t)(lane - engine->select.lanes);
	io->requests = (uint32_t)target_requests(target, io->op, io->length_bytes);
	lane_select_add_requests(&engine->select, io->target, io->requests);
	engine->totals.split += io->requests > 1;
	if (op_is_write(io->op)) {
		engine->totals.buffers_full += lane->buffers_were_full;
		lane->buffers_were_full = false;
	}
	if (io->op == OP_WRITE_ZEROES)
		engine->totals.write_zeroes_of[io->target]++;
	if (engine->counts_hazards && hazard_add(&engine->hazard, slot)) {
		io->flags |= FLAG_HAZARD;
		engine->totals.hazards++;
	}
	engine->changing[io->target] += op_changes_data(io->op);
	zone_guard_set(&engine->select.zone_guard, io->target, io->op, io->offset_bytes, true);
	engine->issuer->queue(engine->issuer, io, slot);
	engine->batch[engine->batch_count++] = slot;
}

/* Prepares the rows that are due. */
static void prepare_due(struct engine *engine, int64_t now_ns)
{
	while (engine->batch_count < BATCH_ROWS) {
		struct lane *lane = lane_select_next(&engine->select, now_ns);

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
	/* A backlog of this host can fill the queue too; then the drive is not the cause. */
	if (io->due_ns <= lane->queue_was_full_ns && !stall_monitor_explains(&engine->monitor, lateness_ns)) {
		io->flags |= FLAG_QUEUE_FULL;
		totals->queue_full++;
		return;
	}
	if (lateness_ns > 0)
		io->host_delay_ns += lateness_ns;
	if (lateness_ns > STALL_JUMP_NS)
		io->flags |= FLAG_HOST_STALLED;
	if (lateness_ns > totals->max_host_lateness_ns)
		totals->max_host_lateness_ns = lateness_ns;
	if (lateness_ns > STALL_REPORT_NS)
		stall_monitor_late(&engine->monitor, io->due_ns, io->submit_ns);
}

/* Counts the rows of the batch that were submitted: all of them, or those that the kernel has taken. */
static void count_submitted(struct engine *engine, bool all)
{
	unsigned waiting = 0;

	for (unsigned i = 0; i < engine->batch_count; i++) {
		uint32_t slot = engine->batch[i];
		struct io *io = &engine->ios[slot];
		struct lane *lane = &engine->select.lanes[io->lane];

		if (!all && !engine->issuer->has_taken(engine->issuer, slot)) {
			engine->batch[waiting++] = slot;
			continue;
		}
		count_lateness(engine, lane, io);
		lane_submitted(lane, io);
		engine->totals.issued[io->op]++;
	}
	engine->batch_count = waiting;
	engine->batch_waits = waiting;
	if (engine_outstanding(engine) > engine->totals.max_outstanding)
		engine->totals.max_outstanding = engine_outstanding(engine);
}

/*
 * Stamps the prepared rows with submit_ns and submits them, then may sleep for a completion. Where the kernel has no
 * room, the rows that it has not taken stay, and get a new stamp after the next completions.
 */
static void submit_batch(struct engine *engine, int64_t submit_ns, int64_t wait_ns)
{
	int16_t cpu;
	int err;

	if (engine->batch_waits)
		count_submitted(engine, false); /* the last reap submits too */
	cpu = engine->batch_count ? (int16_t)sched_getcpu() : -1;
	for (unsigned i = 0; i < engine->batch_count; i++) {
		engine->ios[engine->batch[i]].submit_ns = submit_ns;
		engine->ios[engine->batch[i]].cpu = cpu;
	}
	err = engine->issuer->submit(engine->issuer, wait_ns);
	if (err && err != -EAGAIN) {
		stop_request(engine->stop, STOP_FAILED);
		engine->totals.first_error = err;
	}
	count_submitted(engine, !err);
}

static void count_result(struct engine *engine, const struct io *io)
{
	struct totals *totals = &engine->totals;

	totals->completed[io->op]++;
	if (!io->status) {
		totals->bytes[io->op] += io->length_bytes;
		totals->compares_unequal += io->unequal;
		engine->consecutive_errors = 0;
		return;
	}
	if (!totals->errors++) {
		totals->first_error = io->status;
		totals->first_error_row = io->source_row;
	}
	if (io->status == -ENODEV || io->status == -ENXIO)
		stop_request(engine->stop, STOP_DEVICE_LOST);
	else if (++engine->consecutive_errors == MAX_ERRORS)
		stop_request(engine->stop, STOP_ERRORS);
}

static void record(struct record_block *block, const struct io *io, int64_t complete_ns, int64_t stall_ns)
{
	uint32_t row = block->rows++;

	block->due_ns[row] = io->due_ns;
	block->submit_ns[row] = io->submit_ns;
	block->complete_ns[row] = complete_ns;
	block->offset_bytes[row] = io->offset_bytes;
	block->length_bytes[row] = io->length_bytes;
	block->op[row] = io->op;
	block->flags[row] = io->flags | (stall_ns ? FLAG_HOST_STALLED : 0);
	block->cpu[row] = io->cpu;
	block->status[row] = (int16_t)io->status;
	block->stream[row] = io->stream;
	block->burst[row] = io->burst;
	block->source_row[row] = io->source_row;
	block->target[row] = io->target;
	block->tid[row] = io->tid;
	block->idle_removed_ns[row] = io->idle_removed_ns;
	block->host_delay_ns[row] = io->host_delay_ns;
	block->stall_ns[row] = stall_ns;
}

/* Records completed rows. Returns whether there were any. */
static bool take_completions(struct engine *engine)
{
	struct record_block *block = records_room(engine->records);
	uint32_t slots[REAP_ROWS];
	unsigned room = REAP_ROWS, count;
	int64_t now_ns, stalled_ns;

	if (!block) {
		engine->totals.record_stalls += !engine->records_full;
		engine->records_full = true;
		sleep_ns(RETRY_NS);
		stall_monitor_delay(&engine->monitor, PART_RECORDS, run_time_ns(engine));
		return false;
	}
	engine->records_full = false;
	/* Counted before they complete. */
	if (engine->batch_waits)
		count_submitted(engine, false);
	if (room > RECORD_BLOCK_ROWS - block->rows)
		room = RECORD_BLOCK_ROWS - block->rows;
	count = engine->issuer->reap(engine->issuer, engine->ios, slots, room);
	if (!count) {
		stall_monitor_reaped(&engine->monitor);
		return false;
	}
	now_ns = run_time_ns(engine);
	stalled_ns = stall_monitor_seen_from(&engine->monitor, now_ns);
	if (count < room)
		stall_monitor_reaped(&engine->monitor);
	for (unsigned i = 0; i < count; i++) {
		struct io *io = &engine->ios[slots[i]];
		int64_t stall_ns = now_ns - (stalled_ns > io->submit_ns ? stalled_ns : io->submit_ns);

		record(block, io, now_ns, stall_ns);
		count_result(engine, io);
		if (engine->counts_hazards)
			hazard_remove(&engine->hazard, slots[i]);
		lane_select_add_requests(&engine->select, io->target, -(int64_t)io->requests);
		engine->changing[io->target] -= op_changes_data(io->op);
		zone_guard_set(&engine->select.zone_guard, io->target, io->op, io->offset_bytes, false);
		lane_completed(&engine->select.lanes[io->lane], io, now_ns, stall_ns);
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
	for (unsigned i = 0; i < engine->records->target_count; i++)
		progress_set(&progress->changing[i], engine->changing[i]);
}

/* Announces a sleep of wait_ns to the stall monitor; 0: the loop spins until the next deadline. */
static void rest(struct engine *engine, const struct lane_summary *summary, int64_t now_ns, int64_t wait_ns)
{
	if (wait_ns > 0)
		stall_monitor_rest(&engine->monitor, now_ns, now_ns + wait_ns,
				   summary->behind ? REST_SLEEPS_BEHIND : REST_SLEEPS);
	else if (summary->due_ns != LANE_NOTHING)
		stall_monitor_rest(&engine->monitor, now_ns, summary->due_ns, REST_SPINS);
}

static void sleep_for_completion(struct engine *engine, int64_t now_ns, int64_t wait_ns)
{
	submit_batch(engine, 0, wait_ns);
	engine->slept_ns += run_time_ns(engine) - now_ns;
}

/*
 * The kernel throttles a real-time thread that hardly sleeps for some 40 ms in one piece. Before that happens the
 * thread takes the highest ordinary priority, at which others get their share in small pieces.
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
 * Moves a virtual clock to the next event, once all rows that could come before it are known. A late plan does not
 * move the clock, because that time is of this host and not of the drive.
 */
static void move_clock(struct engine *engine, const struct lane_summary *summary, int64_t now_ns)
{
	if (summary->starving)
		sleep_ns(RETRY_NS);
	else if (summary->due_ns != LANE_NOTHING)
		submit_batch(engine, now_ns, summary->due_ns - now_ns);
	else if (engine_outstanding(engine))
		submit_batch(engine, now_ns, FAR_NS);
}

/*
 * Whether to poll for a completion instead of sleeping: for a short time, and not while a queue is full, because a
 * drive in software needs the CPU then.
 */
static bool polls(const struct engine *engine, const struct lane_summary *summary, int64_t now_ns, int64_t active_ns)
{
	return engine_outstanding(engine) && !engine->clock.is_virtual && !engine->records_full &&
	       now_ns - active_ns < POLL_NS && !summary->full && !summary->ended && summary->due_ns > now_ns;
}

/* With every slot in use the next event is a completion: the submitting call also waits for it. */
static void issue_batch(struct engine *engine, int64_t now_ns)
{
	int64_t wait_ns = engine->free_count || engine->clock.is_virtual ? 0 : IDLE_MAX_NS;

	if (wait_ns) {
		struct lane_summary summary = lane_select_summary(&engine->select, now_ns);

		rest(engine, &summary, now_ns, wait_ns);
	}
	submit_batch(engine, now_ns, wait_ns);
	publish(engine, now_ns);
	take_completions(engine);
}

static void issue_lanes(struct engine *engine)
{
	int64_t active_ns = INT64_MIN / 2;

	while (!stop_requested(engine->stop)) {
		int64_t now_ns = run_time_ns(engine), wait_ns;
		struct lane_summary summary;

		stall_monitor_turn(&engine->monitor, now_ns);
		if (engine->realtime && now_ns - engine->reviewed_ns > REVIEW_NS)
			review_priority(engine, now_ns);
		if (engine->any_background)
			lane_select_finish(&engine->select);
		if (!engine->batch_count)
			prepare_due(engine, now_ns);
		if (engine->batch_count) {
			issue_batch(engine, now_ns);
			active_ns = now_ns;
			continue;
		}
		if (take_completions(engine)) {
			active_ns = now_ns;
			continue;
		}
		summary = lane_select_summary(&engine->select, now_ns);
		if (polls(engine, &summary, now_ns, active_ns)) {
			spin_pause();
			continue;
		}
		if (summary.ended && !engine_outstanding(engine))
			return;
		now_ns = run_time_ns(engine);
		publish(engine, now_ns);
		records_hand_over(engine->records, now_ns, false);
		if (engine->records_full)
			continue;
		if (engine->clock.is_virtual) {
			move_clock(engine, &summary, now_ns);
			continue;
		}
		wait_ns = lane_select_idle_ns(&engine->select, &summary, now_ns, engine_outstanding(engine));
		rest(engine, &summary, now_ns, wait_ns);
		if (wait_ns > 0)
			sleep_for_completion(engine, now_ns, wait_ns);
		else
			spin_pause();
	}
}

/*
 * Waits for outstanding I/O. A drive that answers no read must not block the end of the run. But a write that arrives
 * after it would destroy what the next user of the drive wrote: for writes it waits as long as they take.
 */
static void drain(struct engine *engine)
{
	int64_t until_ns = monotonic_ns() + DRAIN_NS;

	/* In this order: nothing in flight while it drains means that no write comes any more. */
	publish(engine, run_time_ns(engine));
	atomic_store_explicit(&engine->records->progress.draining, 1, memory_order_release);
	if (engine->batch_count)
		submit_batch(engine, run_time_ns(engine), 0);
	while (engine_outstanding(engine) > engine->batch_count &&
	       (any_changing(engine) || monotonic_ns() < until_ns)) {
		publish(engine, run_time_ns(engine));
		if (take_completions(engine) || engine->records_full)
			continue;
		submit_batch(engine, run_time_ns(engine), IDLE_MAX_NS);
		if (stop_requested(engine->stop) == STOP_FAILED)
			sleep_ns(RETRY_NS);
	}
	engine->totals.abandoned = engine_outstanding(engine);
	publish(engine, run_time_ns(engine));
}

/* Delays of this host do not advance a virtual clock, so they delay no row. */
static void forget_delays(struct engine *engine)
{
	engine->totals.record_stalls = 0;
	for (unsigned i = 0; i < engine->select.lane_count; i++)
		engine->select.lanes[i].underruns = 0;
}

void engine_run(struct engine *engine, int64_t start_ns)
{
	struct totals *totals = &engine->totals;
	struct rusage before, after;

	getrusage(RUSAGE_THREAD, &before);
	engine->clock.start_ns = start_ns;
	progress_set(&engine->records->progress.start_monotonic_ns, start_ns);
	stall_monitor_start(&engine->monitor, start_ns);
	issue_lanes(engine);
	lane_select_finish(&engine->select);
	stall_monitor_end(&engine->monitor, run_time_ns(engine));
	drain(engine);
	getrusage(RUSAGE_THREAD, &after);
	if (engine->clock.is_virtual)
		forget_delays(engine);
	totals->involuntary_switches = after.ru_nivcsw - before.ru_nivcsw;
	for (unsigned i = 0; i < engine->select.lane_count; i++) {
		const struct lane *lane = &engine->select.lanes[i];

		totals->underruns += lane->underruns;
		totals->window_full += lane->window_full;
		totals->dependent += lane->dependent;
	}
	totals->time_limit = !stop_requested(engine->stop) && engine->select.stop_ns != INT64_MAX &&
			     lane_select_was_cut_off(&engine->select);
	if (engine->issuer->release && !engine_outstanding(engine))
		engine->issuer->release(engine->issuer);
}
