/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "run.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blocks.h"
#include "cleanup.h"
#include "confine.h"
#include "error.h"
#include "exit_code.h"
#include "issue/engine.h"
#include "memory.h"
#include "simulated/simulated.h"

/* From setting the start time to the first deadline, so that all loops run by then. */
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
	struct lane lanes[MAX_LANES]; /* grouped by thread */
	struct issuing_thread threads[MAX_THREADS];
	struct records records[MAX_THREADS];
	unsigned thread_count;
	struct record_writer writer;
	struct heartbeat heartbeat;
	pthread_barrier_t ready; /* passed with the issuers made, the threads placed, and the start time set */
	bool set_up;
	atomic_bool failed;
	atomic_uint foreground; /* foreground lanes with rows left or outstanding */
	struct target_load loads[MAX_TARGETS];
	int64_t start_ns;
	bool memory_locked;
};

/* New threads inherit the mask, so that only the first issuing thread receives these signals, which end its sleep. */
static void mask_signals(int operation)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(operation, &set, NULL);
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
		.avoid_cpu = thread->cpu,
	};

	if (options->drives)
		thread->engine.issuer = simulated_issuer(options->drives, options->target_count, thread->engine.depth,
							 &thread->engine.clock);
	else if (options->nil_targets)
		thread->engine.issuer = nil_issuer(&issuer_options);
	else
		thread->engine.issuer = uring_issuer(&issuer_options);
	return thread->engine.issuer != NULL;
}

/*
 * A thread with deadlines is pinned. Without deadlines the scheduler places it better, near the completions. Only a
 * thread whose lanes all have deadlines gets real-time priority: one that never sleeps would starve kernel threads.
 */
static void place_thread(struct issuing_thread *thread)
{
	const struct run_options *options = thread->run->options;
	const struct lane_select *select = &thread->engine.select;
	bool all_timed = true, any_timed = false;

	if (options->virtual_clock)
		return;
	for (unsigned i = 0; i < select->lane_count; i++) {
		bool timed = plan_is_timed(&select->lanes[i].plan);

		all_timed &= timed;
		any_timed |= timed;
	}
	thread->pinned = any_timed;
	if (thread->pinned)
		host_pin(thread->cpu);
	else
		host_unpin(options->cpus);
	host_reduce_timer_slack();
	thread->engine.monitor.reads_wakeups = all_timed;
	thread->realtime = options->realtime && all_timed && host_take_priority(true);
	thread->engine.realtime = thread->realtime;
}

static void *issue(void *argument)
{
	struct issuing_thread *thread = argument;
	struct run *run = thread->run;

	/* A ring belongs to the thread that makes it. */
	if (!make_issuer(thread))
		atomic_store(&run->failed, true);
	stall_monitor_init(&thread->engine.monitor, &run->heartbeat);
	thread->engine.monitor.off = run->options->virtual_clock;
	pthread_barrier_wait(&run->ready);
	if (!thread->index) {
		run->memory_locked = memory_touches && host_lock_memory();
		mask_signals(SIG_UNBLOCK);
	}
	place_thread(thread);
	confine_thread(ISSUING_THREAD);
	pthread_barrier_wait(&run->ready);
	stall_monitor_ready(&thread->engine.monitor);
	if (!thread->index)
		run->start_ns = monotonic_ns() + LEAD_NS;
	pthread_barrier_wait(&run->ready);
	if (!atomic_load(&run->failed))
		engine_run(&thread->engine, run->start_ns);
	return NULL;
}

/* Groups the lanes by thread. */
static void share_lanes(struct run *run)
{
	const struct run_options *options = run->options;
	unsigned count = 0, foreground = 0;

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
		thread->cpu = host_cpu_of_thread(options->cpus, t);
		thread->engine = (struct engine){
			.select = {
				.lanes = &run->lanes[count],
				.targets = options->targets,
				.stop_ns = options->stop_ns,
				.foreground = &run->foreground,
				.loads = run->loads,
				.shares_loads = run->thread_count > 1,
			},
			.records = &run->records[t],
			.stop = run->stop,
			.clock.is_virtual = options->virtual_clock,
			.any_background = foreground < options->lane_count,
		};
		for (unsigned i = 0; i < options->lane_count; i++) {
			if (options->lanes[i].thread != t)
				continue;
			run->lanes[count].depth = options->lanes[i].depth;
			run->lanes[count].processors = options->lanes[i].processors;
			run->lanes[count].turnaround_ns = options->turnaround_ns;
			run->lanes[count].background = options->lanes[i].background;
			run->lanes[count].start_ns = options->lanes[i].start_ns;
			run->lanes[count++].number = i;
			thread->engine.select.lane_count++;
		}
	}
}

static int start_plans(struct run *run)
{
	const struct run_options *options = run->options;
	int err = 0;

	for (unsigned i = 0; i < options->lane_count && !err; i++)
		err = plan_init(&run->lanes[i].plan, options->lanes[run->lanes[i].number].fd, options->targets,
				options->target_count, run->stop);
	for (unsigned i = 0; i < options->lane_count && !err; i++)
		plan_wait_loaded(&run->lanes[i].plan);
	return err;
}

static bool may_write(const struct run_options *options)
{
	for (unsigned i = 0; i < options->target_count; i++)
		if (options->targets[i].may_write)
			return true;
	return false;
}

/* The bytes of writes that lanes of a fixed depth will have outstanding, as far as their plans are loaded. */
static size_t wanted_bytes(const struct lane_select *select)
{
	size_t sum = 0;

	for (unsigned i = 0; i < select->lane_count; i++) {
		struct lane *lane = &select->lanes[i];

		/* With deadlines the depth is only a bound, far above the drive's queue. */
		if (!plan_is_timed(&lane->plan))
			sum += lane->depth * payload_whole_bytes((size_t)row_buffer_bytes(lane->plan.longest_write_bytes));
	}
	return sum;
}

static int make_payloads(struct run *run)
{
	struct payload_options payload = run->options->payload;
	int err = 0;

	payload.writes = may_write(run->options);
	for (unsigned t = 0; t < run->thread_count && !err; t++) {
		struct issuing_thread *thread = &run->threads[t];

		payload.pool_bytes = payload_share_bytes(run->thread_count, wanted_bytes(&thread->engine.select));
		err = payload_init(&thread->payload, &payload);
		if (thread->payload.pool)
			thread->engine.select.payload = &thread->payload;
		/* Threads write different data, and their seeds are far from those of other runs. */
		payload.seed += 1ull << 48;
	}
	return err;
}

static int set_up(struct run *run)
{
	const struct run_options *options = run->options;
	int err;

	memory_touches = !options->virtual_clock;
	err = options->virtual_clock ? 0 : heartbeat_init(&run->heartbeat, options->realtime);
	for (unsigned t = 0; t < run->thread_count && !err; t++)
		err = records_init(&run->records[t], options->target_count);
	if (!err)
		err = record_writer_start(&run->writer, run->records, run->thread_count, STDOUT_FILENO, run->stop);
	if (!err)
		err = start_plans(run);
	if (!err && !options->nil_targets)
		err = make_payloads(run);
	for (unsigned t = 0; t < run->thread_count && !err; t++)
		err = engine_init(&run->threads[t].engine);
	if (!err)
		err = -pthread_barrier_init(&run->ready, NULL, run->thread_count);
	for (unsigned t = 1; t < run->thread_count && !err; t++)
		err = -pthread_create(&run->threads[t].thread, NULL, issue, &run->threads[t]);
	run->set_up = !err;
	return err;
}

static void free_run(struct run **pointer)
{
	struct run *run = *pointer;

	/* After a failed setup threads may wait at the barrier; the process ends next. */
	if (!run || !run->set_up)
		return;
	for (unsigned t = 0; t < run->thread_count; t++) {
		struct issuing_thread *thread = &run->threads[t];

		/* The kernel may still access the data of outstanding I/O. */
		if (engine_outstanding(&thread->engine))
			return;
		engine_deinit(&thread->engine);
		payload_deinit(&thread->payload);
		records_deinit(&run->records[t]);
	}
	pthread_barrier_destroy(&run->ready);
	heartbeat_deinit(&run->heartbeat);
	free(run);
}

/* The reason of an early end, for the end block; NULL: the run was not ended early. */
static const char *why_stopped(const struct run *run, const struct totals *totals, char *text, size_t size)
{
	int err = (int)-totals->first_error;

	switch (stop_requested(run->stop)) {
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
		snprintf(text, size, "%u I/Os in a row failed (%s)", MAX_ERRORS, strerror(err));
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
	const struct stall_monitor *monitors[MAX_THREADS];
	char text[160];
	struct run_conditions conditions = {
		.targets = options->targets,
		.lanes = run->lanes,
		.lane_count = options->lane_count,
		.thread_count = run->thread_count,
		.features = first->engine.issuer->features(first->engine.issuer),
		.stopped = why_stopped(run, totals, text, sizeof(text)),
		.cpu = first->pinned ? first->cpu : -1,
		.memory_locked = run->memory_locked,
		.realtime = first->realtime,
		.seed = options->payload.seed,
		.monitors = monitors,
		.simulated = options->drives ? first->engine.issuer : NULL,
	};
	char *json CLEANUP_FREE = NULL;
	int err;

	for (unsigned t = 0; t < run->thread_count; t++)
		monitors[t] = &run->threads[t].engine.monitor;
	for (unsigned i = 0; i < options->lane_count; i++) {
		conditions.planned += run->lanes[i].plan.rows_read;
		conditions.depth += run->lanes[i].depth;
	}
	json = totals_json(totals, &conditions);
	err = record_writer_finish(&run->writer);
	if (!err)
		err = json ? block_write_json(STDOUT_FILENO, BLOCK_END, json, false) : -ENOMEM;
	switch (stop_requested(run->stop)) {
	case STOP_PLAN_REFUSED:
		report_error("make the plan again for this target; nothing of that block was issued", "%s",
			     conditions.stopped);
		return EXIT_REFUSED;
	case STOP_FAILED:
		report_error(NULL, "%s", conditions.stopped);
		return EXIT_FAILED;
	default:
		if (err && !report_shortage("cannot write the end of the run", -err))
			report_error(NULL, "cannot write the end of the run: %s", strerror(-err));
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
	struct run *run CLEANUP(free_run) = calloc(1, sizeof(*run));
	int64_t merges_before = merges(options), realtime_offset_ns;
	struct totals totals;
	int err = -ENOMEM;

	if (run) {
		run->options = options;
		run->stop = stop;
		share_lanes(run);
		mask_signals(SIG_BLOCK);
		host_avoid_threads(options->cpus, run->thread_count);
		err = set_up(run);
	}
	if (err) {
		if (!report_shortage("cannot set up the run", -err))
			report_error(NULL, "cannot set up the run: %s", strerror(-err));
		return EXIT_FAILED;
	}
	realtime_offset_ns = clock_read_ns(CLOCK_REALTIME) - monotonic_ns();
	issue(&run->threads[0]);
	for (unsigned t = 1; t < run->thread_count; t++)
		pthread_join(run->threads[t].thread, NULL);
	if (atomic_load(&run->failed)) {
		record_writer_finish(&run->writer);
		return EXIT_FAILED;
	}
	totals = add_up(run, merges_before, realtime_offset_ns);
	return finish(run, &totals);
}
