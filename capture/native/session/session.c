/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "session.h"
#include "cleanup.h"
#include "clock.h"
#include "error.h"
#include "pid_namespace.h"
#include "privilege.h"
#include "programs/processes.h"
#include "status.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS 1000000u
#define PROGRESS_EVERY_NS (500u * NS_PER_MS)
#define STUCK_READINGS 16 /* of a drive at once */
#define CLOSING_NS (250u * NS_PER_MS) /* for I/Os in flight when the capture is stopped */

static int attach(struct session_options *options, struct programs *programs)
{
	struct capture_config drives = { 0 };
	int64_t slots = drives_assign_slots(options->drives, options->drive_count, &drives);
	struct programs_options wanted = {
		.kind = options->kind,
		.without_io_start = options->without_io_start,
		.ring_bytes = options->ring_bytes,
		.files = options->files,
		.synthetic = options->synthetic_per_second,
		.own = options->own,
		.own_only = options->own_only,
		.uses = !options->without_uses,
		.volumes = options->volumes,
		.own_cgroup = options->own_cgroup,
		.drives = &drives,
		.slot_count = (uint32_t)slots,
	};

	return slots < 0 ? -1 : programs_attach(programs, &wanted);
}

/* Before their first I/O, because the BPF programs cache the properties of a thread. */
static int mark_own(const struct session *session)
{
	int32_t *pids = session->options->own_pids;
	size_t count = session->options->own_pid_count, marked = 0;
	int32_t first = count ? pids[0] : 0;
	int err = 0;

	if (count && !pid_namespace_is_initial())
		err = processes_translate(session->programs.object, pids, count);
	if (err)
		return report_error("run the container with --pid=host, or record outside of it",
				    "cannot recognize the processes of the workload in this PID namespace: %s",
				    strerror(-err));
	for (size_t i = 0; i < count; i++) {
		if (!pids[i])
			continue;
		err = programs_own_pid(&session->programs, pids[i]);
		if (err)
			return report_error("name a process with fewer descendants, or its --cgroup",
					    "cannot mark process %d: %s", pids[i], strerror(-err));
		marked++;
	}
	if (count && !marked)
		return report_error("see: ps -e, with the /proc of this namespace",
				    "no process %d in this PID namespace", first);
	err = count ? processes_mark_descendants(session->programs.object) : 0;
	return err ? report_error(NULL, "cannot mark the children of the workload: %s", strerror(-err)) : 0;
}

int session_probe(struct session_options *options)
{
	struct programs programs CLEANUP(programs_deinit) = { 0 };

	if (attach(options, &programs))
		return 1;
	printf("{\"programs\": \"%s\", \"io_start\": %s, \"limiter\": %s}\n", programs.kind,
	       programs.has_io_start ? "true" : "false", programs.sees_limiter ? "true" : "false");
	return 0;
}

#ifdef MEASURED
/*
 * For measurements/capture/cost.py, which compares fio with and without the programs
 * in one run. I/Os in flight at a detach stay without a completion.
 */
static void run_command(struct session *session, const char *command)
{
	if (!strncmp(command, "detach", 6))
		programs_detach(&session->programs);
	else if (!strncmp(command, "attach", 6) && !session->programs.link_count)
		programs_link(&session->programs);
}
#endif

static uint64_t count_issued(const struct session *session, uint32_t device)
{
	uint64_t count = 0;

	for (size_t i = 0; i < session->programs.slot_count; i++) {
		const volatile struct slot *slot = &session->programs.slots[i];

		count += slot->state == SLOT_ISSUED && slot->op != OP_FLUSH && !(slot->flags & FLAG_PASSTHROUGH) &&
			 slot->device == (int16_t)device;
	}
	return count;
}

/*
 * I/Os that are in flight from before the start to the end have no event. They are in each reading of the kernel's
 * count; I/Os between the two counts are in some of them.
 */
static void count_stuck(struct session *session)
{
	for (uint32_t i = 0; i < session->options->drive_count; i++) {
		struct drive *drive = &session->options->drives[i];

		for (int reading = 0; drive->stuck && reading < STUCK_READINGS && !drive->bio_based; reading++) {
			uint64_t in_flight = 0, issued, stuck;
			bool counted = drive_count_in_flight(drive, &in_flight);

			issued = counted && in_flight ? count_issued(session, i) : 0;
			stuck = counted && in_flight > issued ? in_flight - issued : 0;
			if (stuck < drive->stuck)
				drive->stuck = stuck;
		}
	}
}

static bool any_drive_is_gone(const struct session *session)
{
	for (uint32_t i = 0; i < session->options->drive_count; i++)
		if (drive_is_gone(&session->options->drives[i]))
			return true;
	return false;
}

/* Until stdin ends, a signal arrives, a write fails, a drive disappears or all synthetic records are made. */
static void wait_for_end(struct session *session)
{
	struct pollfd watched[] = {
		{ .fd = STDIN_FILENO, .events = POLLIN },
		{ .fd = session->signal_fd, .events = POLLIN },
		{ .fd = session->outbox.failed_fd, .events = POLLIN },
		{ .fd = session->options->synthetic_per_second ? session->synthetic.done_fd : -1, .events = POLLIN },
	};
	uint64_t live_every_ns = (uint64_t)session->options->live_ms * NS_PER_MS;
	uint64_t next_ns = monotonic_ns() + PROGRESS_EVERY_NS;
	uint64_t live_next_ns = live_every_ns ? monotonic_ns() + live_every_ns : UINT64_MAX;

	while (!watched[1].revents && !watched[2].revents && !watched[3].revents) {
		uint64_t now_ns = monotonic_ns(), wake_ns;
		char command[64] = "";

		if (now_ns >= next_ns) {
			status_progress(session);
			count_stuck(session);
			if (any_drive_is_gone(session))
				return;
			next_ns = now_ns + PROGRESS_EVERY_NS;
		}
		if (now_ns >= live_next_ns) {
			status_live(session, true);
			live_next_ns += live_every_ns;
			if (live_next_ns <= now_ns)
				live_next_ns = now_ns + live_every_ns;
		}
		wake_ns = next_ns < live_next_ns ? next_ns : live_next_ns;
		if (poll(watched, 4, (int)((wake_ns - now_ns) / NS_PER_MS) + 1) < 0) {
			if (errno != EINTR)
				return;
			continue;
		}
		if (!watched[0].revents)
			continue;
		if (read(STDIN_FILENO, command, sizeof(command) - 1) <= 0)
			return;
#ifdef MEASURED
		run_command(session, command);
#endif
	}
}

static uint64_t count_slots(const struct session *session, enum slot_state state)
{
	uint64_t count = 0;

	for (size_t i = 0; i < session->programs.slot_count; i++)
		count += session->programs.slots[i].state == state;
	return count;
}

/*
 * Whether the I/O of a slot that is still issued has ended without a completion event: when
 * the capture was stopped, its drive had nothing in flight. The kernel's count leaves out
 * flushes, commands that a program passes to the drive, and, for a moment, what the drive
 * has completed and no interrupt has ended: stop_recording() waits for that first.
 */
static bool has_ended(const struct session *session, const volatile struct slot *slot)
{
	int32_t device = slot->device;

	return slot->op != OP_FLUSH && !(slot->flags & FLAG_PASSTHROUGH) && device >= 0 &&
	       (uint32_t)device < session->options->drive_count &&
	       session->options->drives[device].idle_at_stop;
}

static bool has_io_in_flight(const struct session *session)
{
	uint64_t key;

	return !bpf_map_get_next_key(session->programs.bios_fd, NULL, &key) || count_slots(session, SLOT_ISSUED);
}

static void set_phase(struct session *session, enum phase phase)
{
	__atomic_store_n(&session->programs.control->phase, phase, __ATOMIC_SEQ_CST);
}

/*
 * Switches and reads the drives' own counters, before and after: the difference
 * is the number of I/Os that may have completed on either side of the switch. A
 * drive whose counters cannot be read keeps its rows, without that check.
 */
static void switch_phase(struct session *session, enum phase phase)
{
	struct disk_counts before[MAX_DEVICES];
	bool start = phase == PHASE_RUNNING;

	for (uint32_t i = 0; i < session->options->drive_count; i++) {
		before[i] = session->options->drives[i].at_start; /* of a drive that has gone */
		drive_read_counts(&session->options->drives[i], &before[i]);
	}
	set_phase(session, phase);
	if (start) {
		/* Now that I/Os are recorded: each one after time 0 has a row, even if this thread waited for a processor. */
		session->epoch_ns = monotonic_ns();
		atomic_store(&session->drain.epoch_ns, session->epoch_ns);
	} else {
		session->stopped_ns = monotonic_ns();
		atomic_store(&session->drain.stopped_ns, session->stopped_ns);
	}
	for (uint32_t i = 0; i < session->options->drive_count; i++) {
		struct drive *drive = &session->options->drives[i];
		struct disk_counts after = before[i];

		/* Before the counters are read, so that they include all that has ended. */
		bool idle = !start && drive_is_idle(drive);

		drive->gone = drive_read_counts(drive, &after) != 0;
		drive_compare_paths(drive);
		drive->idle_at_stop = idle && !drive->gone;
		if (drive->gone)
			after = before[i] = drive->at_start;
		if (!drive->paths_removed)
			drive->uncertain += disk_counts_total(&after) - disk_counts_total(&before[i]);
		*(start ? &drive->at_start : &drive->at_stop) = start ? before[i] : after;
	}
}

/* New I/Os are not recorded from here on; those in flight may still complete. */
static void stop_recording(struct session *session)
{
	uint64_t deadline_ns;

	count_stuck(session);
	switch_phase(session, PHASE_CLOSING);
	deadline_ns = session->stopped_ns + CLOSING_NS;
	while (has_io_in_flight(session) && monotonic_ns() < deadline_ns)
		nanosleep(&(struct timespec){ .tv_nsec = NS_PER_MS }, NULL);
	set_phase(session, PHASE_OFF);
	programs_detach(&session->programs);
}

static void add_slot(struct session *session, const volatile struct slot *slot)
{
	struct io_file_record record = {
		.io = {
			.kind = RECORD_IO,
			.op = slot->op,
			.device = slot->device,
			.cpu = slot->cpu,
			.start_ns = slot->start_ns,
			.submit_ns = slot->submit_ns,
			.sector = slot->sector,
			.length_bytes = slot->length_bytes,
			.flags = slot->flags,
			.tid = slot->tid,
			.waited_submit_ns = slot->waited_submit_ns,
			.waited_complete_ns = slot->waited_complete_ns,
			.times = slot->times,
		},
		.inode = slot->inode,
		.cgroup = slot->cgroup,
	};

	if (!has_ended(session, slot))
		session->in_flight_at_end++;
	else if (slot->skipped)
		session->not_own_at_end++;
	else
		session->unseen_at_end++;
	if (!slot->skipped)
		drain_add(&session->drain, &record.io, session->options->files ? &record : NULL);
}

/* I/Os without a completion are part of the trace, without a latency. */
static void add_in_flight(struct session *session)
{
	uint64_t key, *previous = NULL;
	struct slot bio;

	for (size_t i = 0; i < session->programs.slot_count; i++)
		if (session->programs.slots[i].state == SLOT_ISSUED)
			add_slot(session, &session->programs.slots[i]);
	while (!bpf_map_get_next_key(session->programs.bios_fd, previous, &key)) {
		if (!bpf_map_lookup_elem(session->programs.bios_fd, &key, &bio))
			add_slot(session, &bio);
		previous = &key;
	}
	session->queued_at_end = count_slots(session, SLOT_STARTED);
}

static int record(struct session *session)
{
	int err = names_init(&session->names, &session->outbox, session->options->without_names);

	if (!err)
		err = drain_init(&session->drain, &session->outbox, &session->names, session->programs.ring_fd);
	if (err)
		return report_shortage("cannot read the ring of the BPF programs", -err) ? -1 :
		       report_error(NULL, "cannot read the ring of the BPF programs: %s", strerror(-err));
	/* Threads take milliseconds to start: the counters and time 0 are taken when rows can come. */
	switch_phase(session, PHASE_RUNNING);
	count_stuck(session);
	status_attached(session);
	if (session->options->synthetic_per_second)
		synthetic_begin(&session->synthetic);
	wait_for_end(session);
	synthetic_deinit(&session->synthetic);
	stop_recording(session);
	drain_stop(&session->drain);
	add_in_flight(session);
	drain_flush(&session->drain);
	names_finish(&session->names);
	outbox_finish(&session->outbox);
	err = ledger_read(&session->ledger, session->programs.ledger_fd);
	if (err)
		return report_error(NULL, "cannot read the ledger of the BPF programs: %s", strerror(-err));
	/* These belong to no CPU. */
	session->ledger.cpus[0].reused += session->unseen_at_end;
	session->ledger.cpus[0].not_own += session->not_own_at_end;
	session->ledger.cpus[0].in_flight_at_start += session->drain.before_start;
	status_live(session, false);
	err = status_end(session);
	return err ? report_error(NULL, "cannot write the totals of the capture: %s", strerror(-err)) : 0;
}

static int open_signals(void)
{
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a limit of the file size is an error like a full disk */
	return signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void session_deinit(struct session *session)
{
	synthetic_deinit(&session->synthetic);
	drain_deinit(&session->drain);
	names_deinit(&session->names);
	outbox_deinit(&session->outbox);
	live_destroy(session->live);
	programs_deinit(&session->programs);
	ledger_deinit(&session->ledger);
	if (session->signal_fd >= 0)
		close(session->signal_fd);
}

/* The steps that need privilege; it is dropped at the end. */
static int session_init(struct session *session)
{
	struct session_options *options = session->options;
	int err = session->signal_fd < 0 ? -errno : ledger_init(&session->ledger);

	if (err)
		return report_error(NULL, "cannot start the capture: %s", strerror(-err));
	if (attach(options, &session->programs) || mark_own(session))
		return -1;
	if (options->synthetic_per_second) {
		err = synthetic_init(&session->synthetic, &session->programs, options->synthetic_per_second,
				     options->synthetic_count);
		if (err)
			return report_error(NULL, "cannot make synthetic records: %s", strerror(-err));
	}
#ifndef MEASURED
	err = privilege_drop(session->programs.ledger_fd, session->ledger.cpus);
#endif
	return err ? report_error(NULL, "cannot drop privileges: %s", strerror(-err)) : 0;
}

int session_run(struct session_options *options)
{
	struct session session CLEANUP(session_deinit) = { .options = options, .signal_fd = open_signals() };
	int err;

	if (session_init(&session))
		return 1;
	rows_set_files(options->files);
	if (options->live_ms) {
		session.live = live_create();
		if (!session.live)
			return report_error(NULL, "no memory for the live view"), 1;
	}
	err = outbox_init(&session.outbox, options->rows_fd, options->reserve_fd, session.live);
	if (err && !report_shortage("cannot write the rows", -err))
		report_error("free some space, or name another output", "cannot write the rows: %s", strerror(-err));
	if (err)
		return 1;
	return record(&session) ? 1 : 0;
}
