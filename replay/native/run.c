/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "run.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blocks.h"
#include "clock.h"
#include "engine.h"
#include "host.h"
#include "message.h"
#include "simulated.h"

/* Between setting the start and the first deadline: the loops are running by then. */
#define LEAD_NS 200000ll

struct run;

struct issuing_thread {
	struct run *run;
	struct engine engine;
	struct payload payload;
	pthread_t thread;
	unsigned index;
	int cpu;
	bool pinned;
	bool realtime;
};

struct run {
	const struct run_options *options;
	struct stop *stop;
	struct lane lanes[MAX_LANES]; /* those of one thread lie together */
	struct issuing_thread threads[MAX_THREADS];
	struct records records[MAX_THREADS];
	unsigned thread_count;
	struct record_writer writer;
	struct witness witness;
	pthread_barrier_t ready; /* passed twice: all have their ring; the start is set */
	atomic_bool failed;
	atomic_uint foreground; /* lanes that have rows left or outstanding, but for those in the background */
	int64_t start_ns;
	bool memory_locked;
};

/* Threads started while they are blocked leave these signals to the first one, whose sleep they end. */
static void block_signals(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(how, &set, NULL);
}

/* Whether every lane has deadlines to meet, and whether any has. */
static void see_deadlines(const struct engine *engine, bool *all, bool *any)
{
	*all = true;
	*any = false;
	for (unsigned i = 0; i < engine->lane_count; i++) {
		bool timed = plan_is_timed(&engine->lanes[i].plan);

		*all &= timed;
		*any |= timed;
	}
}

static bool make_issuer(struct issuing_thread *thread)
{
	const struct run_options *options = thread->run->options;
	const struct issuer_options issuer_options = {
		.targets = options->targets,
		.target_count = options->target_count,
		.payload = &thread->payload,
		.depth = thread->engine.depth,
		.plain = options->plain,
		.polled = options->polled,
		.helper_cpu_besides = thread->cpu,
		.null_fail_row = options->null_fail_row,
		.null_fail_errno = options->null_fail_errno,
	};

	/* The ring belongs to the thread that makes it. */
	if (options->drives)
		thread->engine.issuer = simulated_issuer(options->drives, options->target_count, thread->engine.depth,
							 &thread->engine.clock);
	else if (options->null_targets)
		thread->engine.issuer = null_issuer(&issuer_options);
	else
		thread->engine.issuer = uring_issuer(&issuer_options);
	return thread->engine.issuer != NULL;
}

/*
 * To meet a deadline a thread must be there already; without deadlines it does
 * better where the scheduler puts it, beside whatever completes the I/O. Only
 * a thread that rests between deadlines may have real-time priority: another
 * would starve the kernel's own threads.
 */
static void take_place(struct issuing_thread *thread)
{
	const struct run_options *options = thread->run->options;
	bool all_timed, any_timed;

	if (options->virtual_clock)
		return;
	see_deadlines(&thread->engine, &all_timed, &any_timed);
	thread->pinned = options->cpu >= 0 || any_timed;
	if (thread->pinned)
		host_pin(thread->cpu);
	else
		host_unpin();
	host_wake_in_time();
	thread->realtime = options->realtime && all_timed && host_take_priority(true);
	thread->engine.realtime = thread->realtime;
}

static void *issue(void *argument)
{
	struct issuing_thread *thread = argument;
	struct run *run = thread->run;

	if (!make_issuer(thread))
		atomic_store(&run->failed, true);
	watch_init(&thread->engine.watch, &run->witness);
	thread->engine.watch.off = run->options->virtual_clock;
	pthread_barrier_wait(&run->ready);
	watch_ready(&thread->engine.watch);
	if (!thread->index) {
		run->memory_locked = host_lock_memory();
		block_signals(SIG_UNBLOCK);
		watch_ready(&thread->engine.watch);
		run->start_ns = monotonic_ns() + LEAD_NS;
	}
	take_place(thread);
	pthread_barrier_wait(&run->ready);
	if (!atomic_load(&run->failed))
		engine_run(&thread->engine, run->start_ns);
	return NULL;
}

/* The lanes in the order of their threads, and each thread's share of them. */
static void share_lanes(struct run *run)
{
	const struct run_options *options = run->options;
	unsigned placed = 0, foreground = 0;

	for (unsigned i = 0; i < options->lane_count; i++) {
		foreground += !options->lanes[i].background;
		if (options->lanes[i].thread >= run->thread_count)
			run->thread_count = options->lanes[i].thread + 1;
	}
	atomic_store(&run->foreground, foreground);
	for (unsigned t = 0; t < run->thread_count; t++) {
		struct issuing_thread *thread = &run->threads[t];

		thread->run = run;
		thread->index = t;
		thread->cpu = host_cpu_of_thread(t);
		thread->engine = (struct engine){
			.lanes = &run->lanes[placed],
			.records = &run->records[t],
			.targets = options->targets,
			.target_count = options->target_count,
			.stop = run->stop,
			.spin_ns = options->spin_ns,
			.max_errors = options->max_errors,
			.stop_ns = options->stop_ns,
			.clock.is_virtual = options->virtual_clock,
			.foreground = &run->foreground,
			.any_background = foreground < options->lane_count,
		};
		for (unsigned i = 0; i < options->lane_count; i++) {
			if (options->lanes[i].thread != t)
				continue;
			run->lanes[placed].depth = options->lanes[i].depth;
			run->lanes[placed].background = options->lanes[i].background;
			run->lanes[placed++].number = i;
		}
		thread->engine.lane_count = &run->lanes[placed] - thread->engine.lanes;
	}
}

static int start_plans(struct run *run)
{
	const struct run_options *options = run->options;
	unsigned placed = 0;

	for (unsigned t = 0; t < run->thread_count; t++) {
		for (unsigned i = 0; i < options->lane_count; i++) {
			int err;

			if (options->lanes[i].thread != t)
				continue;
			err = plan_start(&run->lanes[placed++].plan, options->lanes[i].fd, options->targets,
					 options->target_count, run->stop);
			if (err)
				return err;
		}
	}
	for (unsigned i = 0; i < options->lane_count; i++)
		plan_wait_loaded(&run->lanes[i].plan);
	return 0;
}

static bool may_write(const struct run_options *options)
{
	for (unsigned i = 0; i < options->target_count; i++)
		if (options->targets[i].may_write)
			return true;
	return false;
}

static int set_up(struct run *run)
{
	const struct run_options *options = run->options;
	struct payload_options payload = options->payload;
	int err = options->virtual_clock ? 0 : witness_start(&run->witness);

	payload.writes = may_write(options);
	payload.pool_bytes = payload_share_bytes(run->thread_count);
	for (unsigned t = 0; t < run->thread_count && !err; t++) {
		run->threads[t].engine.payload_bytes = payload.pool_bytes;
		err = records_init(&run->records[t]);
		if (!err && !options->null_targets)
			err = payload_init(&run->threads[t].payload, &payload);
		/* Another seed for each, and far from those of other runs: no two write the same data. */
		payload.seed += 1ull << 48;
	}
	if (!err)
		err = record_writer_start(&run->writer, run->records, run->thread_count, STDOUT_FILENO, run->stop);
	if (!err)
		err = start_plans(run);
	for (unsigned t = 0; t < run->thread_count && !err; t++)
		err = engine_init(&run->threads[t].engine);
	if (!err)
		err = -pthread_barrier_init(&run->ready, NULL, run->thread_count);
	for (unsigned t = 1; t < run->thread_count && !err; t++)
		err = -pthread_create(&run->threads[t].thread, NULL, issue, &run->threads[t]);
	return err;
}

/* Why the run ended early, for its end block. NULL: it did not. */
static const char *why_stopped(const struct run *run, const struct totals *totals, char *text, size_t size)
{
	int err = -totals->first_error;

	switch (stop_asked(run->stop)) {
	case STOP_NONE:
		return totals->abandoned ? "the target did not answer" : NULL;
	case STOP_SIGNAL:
		return "interrupted";
	case STOP_OUTPUT_CLOSED:
		return "nobody reads the records";
	case STOP_PLAN_CUT_OFF:
		return "the plan broke off";
	case STOP_PLAN_REFUSED:
		for (unsigned i = 0; i < run->options->lane_count; i++)
			if (run->lanes[i].plan.refusal[0])
				return run->lanes[i].plan.refusal;
		return "the plan was refused";
	case STOP_DEVICE_LOST:
		return "the drive is gone";
	case STOP_ERRORS:
		snprintf(text, size, "%u I/Os in a row failed (%s)", run->options->max_errors, strerror(err));
		return text;
	case STOP_FAILED:
		snprintf(text, size, "io_uring failed: %s", strerror(err));
		return text;
	}
	return "unknown";
}

static int finish(struct run *run, const struct totals *totals)
{
	const struct run_options *options = run->options;
	struct issuing_thread *first = &run->threads[0];
	const struct watch *watches[MAX_THREADS];
	char text[160];
	struct circumstances how = {
		.targets = options->targets,
		.target_count = options->target_count,
		.lanes = run->lanes,
		.lane_count = options->lane_count,
		.thread_count = run->thread_count,
		.features = first->engine.issuer->features(first->engine.issuer),
		.stopped = why_stopped(run, totals, text, sizeof(text)),
		.cpu = first->pinned ? first->cpu : -1,
		.memory_locked = run->memory_locked,
		.realtime = first->realtime,
		.seed = options->payload.seed,
		.watches = watches,
		.simulated = options->drives ? first->engine.issuer : NULL,
	};
	char *json;
	int err = -1;

	for (unsigned t = 0; t < run->thread_count; t++)
		watches[t] = &run->threads[t].engine.watch;
	for (unsigned i = 0; i < options->lane_count; i++) {
		how.planned += run->lanes[i].plan.rows_read;
		how.depth += run->lanes[i].depth;
	}
	json = totals_json(totals, &how);
	if (record_writer_finish(&run->writer) && json)
		err = block_write_json(STDOUT_FILENO, BLOCK_END, json);
	free(json);
	switch (stop_asked(run->stop)) {
	case STOP_PLAN_REFUSED:
		complain("%s; nothing of that block was issued, and the plan must be made anew for this target",
			 how.stopped);
		return EXIT_REFUSED;
	case STOP_FAILED:
		complain("%s", how.stopped);
		return EXIT_FAILED;
	default:
		return err ? EXIT_FAILED : EXIT_DONE;
	}
}

static int64_t merges(const struct run_options *options)
{
	int64_t sum = 0;

	for (unsigned i = 0; i < options->target_count; i++)
		sum += target_merges(&options->targets[i]);
	return sum;
}

/* What the threads came to together. */
static struct totals add_up(struct run *run, int64_t merges_before, int64_t realtime_offset_ns)
{
	const struct run_options *options = run->options;
	struct totals totals;

	totals_init(&totals);
	for (unsigned t = 0; t < run->thread_count; t++)
		totals_add(&totals, &run->threads[t].engine.totals);
	totals.start_monotonic_ns = run->start_ns;
	totals.start_realtime_ns = run->start_ns + realtime_offset_ns;
	totals.merged = merges(options) - merges_before;
	for (unsigned i = 0; i < options->target_count; i++)
		if (totals.write_zeroes_of[i] && target_lost_write_zeroes(&options->targets[i]))
			totals.altered[ALTERED_WRITE_ZEROES] += totals.write_zeroes_of[i];
	return totals;
}

int run_replay(const struct run_options *options, struct stop *stop)
{
	static struct run run;
	int64_t merges_before = merges(options), realtime_offset_ns;
	struct totals totals;
	int err;

	run.options = options;
	run.stop = stop;
	share_lanes(&run);
	block_signals(SIG_BLOCK);
	host_keep_off_threads(run.thread_count);
	err = set_up(&run);
	if (err) {
		complain("cannot set up the run: %s", strerror(-err));
		return EXIT_FAILED;
	}
	realtime_offset_ns = clock_read_ns(CLOCK_REALTIME) - monotonic_ns();
	issue(&run.threads[0]);
	for (unsigned t = 1; t < run.thread_count; t++)
		pthread_join(run.threads[t].thread, NULL);
	if (atomic_load(&run.failed))
		return EXIT_FAILED;
	totals = add_up(&run, merges_before, realtime_offset_ns);
	return finish(&run, &totals);
}
