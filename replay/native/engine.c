/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "engine.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "clock.h"

/* Between setting the start and the first deadline: the loop is running by then. */
#define LEAD_NS 200000ll
/* The longest sleep: how late a signal that came just before it is seen. */
#define NAP_NS (50 * NS_PER_MS)
/*
 * How long to look for a completion before sleeping for one, where the next
 * row has a deadline: to be woken takes time that the latency would include.
 * At a fixed depth the drive needs the processor more than we do.
 */
#define LOOK_NS 20000ll
/* How long outstanding I/O may take once a run is to end. */
#define DRAIN_NS (30 * NS_PER_S)
/* While the plan or room for records is missing: how often to look. */
#define LOOK_AGAIN_NS 50000ll

int engine_init(struct engine *engine)
{
	engine->ios = calloc(engine->depth, sizeof(*engine->ios));
	engine->free_slots = calloc(engine->depth, sizeof(*engine->free_slots));
	if (!engine->ios || !engine->free_slots)
		return -ENOMEM;
	for (uint32_t slot = 0; slot < engine->depth; slot++) {
		engine->ios[slot].pending = 1; /* touched */
		engine->free_slots[slot] = engine->depth - 1 - slot;
	}
	engine->free_count = engine->depth;
	engine->queue_was_full_ns = INT64_MIN;
	engine->totals.min_lateness_ns = INT64_MAX;
	engine->totals.max_lateness_ns = INT64_MIN;
	engine->totals.max_host_lateness_ns = INT64_MIN;
	return 0;
}

static int64_t run_time_ns(const struct engine *engine)
{
	return monotonic_ns() - engine->start_ns;
}

static uint32_t outstanding(const struct engine *engine)
{
	return engine->depth - engine->free_count;
}

/* The row the plan is at, into a slot; or counted as dropped, where this target can't carry it out. */
static void prepare_row(struct engine *engine)
{
	struct plan_block *block = engine->plan->current;
	uint32_t i = engine->plan->next;
	int op = block->op[i];
	enum fidelity fidelity = target_fidelity(engine->target, op, block->flags[i]);
	uint32_t slot;
	struct io *io;

	if (fidelity == DROPPED) {
		engine->totals.dropped[op]++;
		return;
	}
	engine->totals.altered[fidelity]++;
	slot = engine->free_slots[--engine->free_count];
	io = &engine->ios[slot];
	io->due_ns = block->due_ns[i];
	io->offset_bytes = block->offset_bytes[i];
	io->length_bytes = block->length_bytes[i];
	io->op = op;
	io->flags = block->flags[i] & ~FLAG_QUEUE_FULL;
	io->stream = block->stream[i];
	io->burst = block->burst[i];
	io->source_row = block->source_row[i];
	if (engine->target->max_io_bytes && (op == OP_READ || op == OP_WRITE) &&
	    io->length_bytes > engine->target->max_io_bytes)
		engine->totals.split++;
	if (op == OP_WRITE) {
		engine->writing_bytes += io->length_bytes;
		engine->totals.shared_payload += engine->writing_bytes > PAYLOAD_POOL_BYTES;
	}
	engine->issuer->queue(engine->issuer, io, slot);
	engine->batch[engine->batch_count++] = slot;
}

/* Prepares what is due. */
static void prepare_due(struct engine *engine, int64_t now_ns)
{
	struct plan *plan = engine->plan;

	while (engine->batch_count < BATCH_ROWS && plan_has_row(plan)) {
		int64_t due_ns = plan->current->due_ns[plan->next];

		if (engine->starving) {
			engine->starving = false;
			watch_fed(&engine->watch, due_ns, now_ns);
			if (due_ns < now_ns)
				engine->totals.underruns++;
		}
		if (due_ns > now_ns)
			return;
		if (!engine->free_count) {
			engine->queue_was_full_ns = now_ns;
			return;
		}
		prepare_row(engine);
		plan->next++;
	}
}

static void count_lateness(struct engine *engine, struct io *io)
{
	struct totals *totals = &engine->totals;
	int64_t lateness_ns = io->submit_ns - io->due_ns;

	if (io->due_ns < 0)
		return;
	totals->plan_ns = io->due_ns;
	if (lateness_ns < totals->min_lateness_ns)
		totals->min_lateness_ns = lateness_ns;
	if (lateness_ns > totals->max_lateness_ns)
		totals->max_lateness_ns = lateness_ns;
	/* A queue that what had piled up here has filled says nothing of the drive. */
	if (io->due_ns <= engine->queue_was_full_ns && !watch_explains(&engine->watch, lateness_ns)) {
		io->flags |= FLAG_QUEUE_FULL;
		totals->queue_full++;
		return;
	}
	if (lateness_ns > totals->max_host_lateness_ns)
		totals->max_host_lateness_ns = lateness_ns;
	if (lateness_ns > WATCH_TOLD_NS)
		watch_late(&engine->watch, io->due_ns, io->submit_ns);
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

		count_lateness(engine, io);
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
		engine->writing_bytes -= io->length_bytes;
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
		engine->free_slots[engine->free_count++] = slots[i];
	}
	engine->totals.wall_ns = now_ns;
	records_hand_over(engine->records, now_ns, false);
	return true;
}

static void publish(struct engine *engine, int64_t now_ns)
{
	struct progress *progress = engine->progress;
	int64_t late_ns = engine->totals.max_lateness_ns;

	progress_set(&progress->elapsed_ns, now_ns);
	progress_set(&progress->submitted, totals_sum(engine->totals.issued));
	progress_set(&progress->completed, totals_sum(engine->totals.completed));
	progress_set(&progress->errors, engine->totals.errors);
	progress_set(&progress->outstanding, outstanding(engine));
	progress_set(&progress->max_lateness_ns, late_ns == INT64_MIN ? 0 : late_ns);
}

/*
 * How long there is nothing to do but to wait for a completion: 0 means spin
 * or go on, because a deadline is near or a row can be issued.
 */
static int64_t idle_ns(struct engine *engine, int64_t now_ns)
{
	struct plan *plan = engine->plan;
	int64_t due_ns;

	if (!plan_has_row(plan)) {
		if (plan_exhausted(plan))
			return outstanding(engine) ? NAP_NS : 0;
		engine->starving = true;
		watch_starving(&engine->watch, now_ns);
		return LOOK_AGAIN_NS;
	}
	due_ns = plan->current->due_ns[plan->next];
	if (due_ns <= now_ns)
		return engine->free_count ? 0 : NAP_NS;
	return sleep_before(due_ns, now_ns, engine->spin_ns, NAP_NS);
}

/* Whether to look for a completion instead of sleeping for it. */
static bool looks(const struct engine *engine, int64_t now_ns, int64_t active_ns)
{
	struct plan *plan = engine->plan;

	return outstanding(engine) && !engine->stalled && now_ns - active_ns < LOOK_NS && plan_has_row(plan) &&
	       plan->current->due_ns[plan->next] > now_ns;
}

/* Says so to whoever watches. wait_ns 0: it spins until the next deadline. */
static void rest(struct engine *engine, int64_t now_ns, int64_t wait_ns)
{
	int64_t due_ns = plan_has_row(engine->plan) ? engine->plan->current->due_ns[engine->plan->next] : -1;

	if (wait_ns > 0)
		watch_rest(&engine->watch, now_ns, now_ns + wait_ns,
			   due_ns >= 0 && due_ns <= now_ns ? REST_SLEEPS_BEHIND : REST_SLEEPS);
	else
		watch_rest(&engine->watch, now_ns, due_ns, REST_SPINS);
}

static void issue_plan(struct engine *engine)
{
	int64_t active_ns = INT64_MIN / 2;

	while (!stop_asked(engine->stop)) {
		int64_t now_ns = run_time_ns(engine);

		watch_turn(&engine->watch, now_ns);
		if (!engine->batch_count)
			prepare_due(engine, now_ns);
		if (engine->batch_count) {
			/* With the queue full the next thing to happen is a completion: one call does both. */
			if (!engine->free_count)
				rest(engine, now_ns, NAP_NS);
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
		if (looks(engine, now_ns, active_ns)) {
			spin_pause();
			continue;
		}
		if (plan_exhausted(engine->plan) && !outstanding(engine))
			return;
		now_ns = run_time_ns(engine);
		publish(engine, now_ns);
		records_hand_over(engine->records, now_ns, false);
		if (engine->stalled)
			continue;
		int64_t wait_ns = idle_ns(engine, now_ns);

		rest(engine, now_ns, wait_ns);
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

void engine_run(struct engine *engine)
{
	struct totals *totals = &engine->totals;
	struct rusage before, after;
	int64_t merges_before;

	getrusage(RUSAGE_THREAD, &before);
	totals->start_monotonic_ns = engine->start_ns = monotonic_ns() + LEAD_NS;
	totals->start_realtime_ns = clock_read_ns(CLOCK_REALTIME) + LEAD_NS;
	merges_before = target_merges(engine->target);
	watch_start(&engine->watch, engine->start_ns);
	issue_plan(engine);
	watch_end(&engine->watch, run_time_ns(engine));
	drain(engine);
	totals->merged = target_merges(engine->target) - merges_before;
	getrusage(RUSAGE_THREAD, &after);
	totals->involuntary_switches = after.ru_nivcsw - before.ru_nivcsw;
	if (totals->issued[OP_WRITE_ZEROES] && target_lost_write_zeroes(engine->target))
		totals->altered[ALTERED_WRITE_ZEROES] = totals->issued[OP_WRITE_ZEROES];
	if (!outstanding(engine))
		engine->issuer->release(engine->issuer);
	if (totals->min_lateness_ns == INT64_MAX)
		totals->min_lateness_ns = totals->max_lateness_ns = 0;
	if (totals->max_host_lateness_ns == INT64_MIN)
		totals->max_host_lateness_ns = 0;
}
