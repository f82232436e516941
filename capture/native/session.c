/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "session.h"
#include "telling.h"
#include "drain.h"
#include "failure.h"
#include "ledger.h"
#include "outbox.h"
#include "privilege.h"
#include "synthetic.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_EVERY_MS 500
#define CLOSING_NS 250000000ull /* for what is in flight when the capture is stopped */

static int attach(struct session_options *options, struct programs *programs)
{
	struct device_config devices[MAX_DEVICES];
	struct programs_options wanted = {
		.kind = options->kind,
		.without_io_start = options->without_io_start,
		.ring_bytes = options->ring_bytes,
		.files = options->files,
		.synthetic = options->synthetic_per_second,
		.own = options->own,
		.own_only = options->own_only,
		.own_cgroup = options->own_cgroup,
		.devices = devices,
		.device_count = options->drive_count,
	};

	wanted.slot_count = drives_lay_out(options->drives, options->drive_count, devices);
	return programs_attach(programs, &wanted);
}

/* Before the first of their I/O can come: what is known of a thread is kept from then on. */
static int mark_own(const struct session *session)
{
	for (size_t i = 0; i < session->options->own_pid_count; i++) {
		int err = programs_own_pid(&session->programs, session->options->own_pids[i]);

		if (err)
			return fail("name a process with fewer descendants, or its --cgroup", "cannot mark process %d: %s",
				    session->options->own_pids[i], strerror(-err));
	}
	return 0;
}

int session_probe(struct session_options *options)
{
	struct programs programs;

	if (attach(options, &programs))
		return 1;
	printf("{\"programs\": \"%s\", \"io_start\": %s}\n", programs.kind, programs.has_io_start ? "true" : "false");
	programs_close(&programs);
	return 0;
}

/*
 * "detach" and "attach" are for bench/capture_peers.py, which compares fio with
 * and without the programs in one run. What is in flight then stays without a
 * completion.
 */
static void obey(struct session *session, const char *word)
{
	if (!strncmp(word, "detach", 6))
		programs_detach(&session->programs);
	else if (!strncmp(word, "attach", 6) && !session->programs.link_count)
		programs_link(&session->programs);
}

static bool a_drive_is_gone(const struct session *session)
{
	for (size_t i = 0; i < session->options->drive_count; i++)
		if (drive_is_gone(&session->options->drives[i]))
			return true;
	return false;
}

/* Until stdin ends, a signal comes, the disk is full or a drive disappears. */
static void wait_for_end(struct session *session, int signal_fd)
{
	struct pollfd watched[] = {
		{ .fd = STDIN_FILENO, .events = POLLIN },
		{ .fd = signal_fd, .events = POLLIN },
		{ .fd = session->outbox.failed_fd, .events = POLLIN },
		{ .fd = session->options->synthetic_per_second ? session->synthetic.done_fd : -1, .events = POLLIN },
	};
	uint64_t live_every_ns = session->options->live_ms * 1000000ull;
	uint64_t next_ns = monotonic_ns() + PROGRESS_EVERY_MS * 1000000ull;
	uint64_t live_next_ns = live_every_ns ? monotonic_ns() + live_every_ns : UINT64_MAX;

	for (;;) {
		uint64_t now_ns = monotonic_ns();
		char word[64] = "";

		if (now_ns >= next_ns) {
			tell_progress(session);
			if (a_drive_is_gone(session))
				return;
			next_ns = now_ns + PROGRESS_EVERY_MS * 1000000ull;
		}
		if (now_ns >= live_next_ns) {
			tell_live(session, true);
			live_next_ns += live_every_ns;
			if (live_next_ns <= now_ns)
				live_next_ns = now_ns + live_every_ns;
		}
		if (poll(watched, 4, (int)(((next_ns < live_next_ns ? next_ns : live_next_ns) - now_ns) / 1000000) + 1) < 0 && errno != EINTR)
			return;
		if (watched[1].revents || watched[2].revents || watched[3].revents)
			return;
		if (!watched[0].revents)
			continue;
		if (read(STDIN_FILENO, word, sizeof(word) - 1) <= 0)
			return;
		obey(session, word);
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
 * Whether what stands in a slot has ended unseen: when the capture was stopped,
 * its drive had nothing in flight. Flushes are not in the kernel's count.
 */
static bool has_ended(const struct session *session, const volatile struct slot *slot)
{
	int32_t device = slot->device;

	return slot->op != OP_FLUSH && device >= 0 && (size_t)device < session->options->drive_count &&
	       session->options->drives[device].idle_at_stop;
}

static bool waits_for_a_drive(const struct session *session)
{
	for (size_t i = 0; i < session->programs.slot_count; i++) {
		const volatile struct slot *slot = &session->programs.slots[i];

		if (slot->state == SLOT_ISSUED && !has_ended(session, slot))
			return true;
	}
	return false;
}

static void set_phase(struct session *session, enum phase phase)
{
	__atomic_store_n(&session->programs.control->phase, phase, __ATOMIC_SEQ_CST);
}

/*
 * Without its counters a drive has no second witness; the rows are as good as
 * before. Read before and after the switch, they say how many I/Os the switch
 * itself may have hidden.
 */
static void switch_phase(struct session *session, enum phase phase)
{
	struct disk_counts before[MAX_DEVICES];
	bool start = phase == PHASE_RUNNING;

	for (size_t i = 0; i < session->options->drive_count; i++) {
		before[i] = session->options->drives[i].at_start; /* of a drive that has gone */
		drive_read_counts(&session->options->drives[i], &before[i]);
	}
	if (start) {
		session->epoch_ns = monotonic_ns();
		session->drain.epoch_ns = session->epoch_ns;
	}
	set_phase(session, phase);
	if (!start) {
		session->stopped_ns = monotonic_ns();
		atomic_store(&session->drain.stopped_ns, session->stopped_ns);
	}
	for (size_t i = 0; i < session->options->drive_count; i++) {
		struct drive *drive = &session->options->drives[i];
		struct disk_counts after = before[i];

		/* Before the counters are read, so that they hold all that has ended. */
		bool idle = !start && drive_is_idle(drive);

		drive->gone = drive_read_counts(drive, &after) != 0;
		drive->idle_at_stop = idle && !drive->gone;
		if (drive->gone)
			after = before[i] = drive->at_start;
		drive->uncertain += disk_counts_total(&after) - disk_counts_total(&before[i]);
		*(start ? &drive->at_start : &drive->at_stop) = start ? before[i] : after;
	}
}

/* Nothing new from here on; what is in flight may still complete. */
static void stop_recording(struct session *session)
{
	uint64_t deadline_ns;

	switch_phase(session, PHASE_CLOSING);
	deadline_ns = session->stopped_ns + CLOSING_NS;
	while (waits_for_a_drive(session) && monotonic_ns() < deadline_ns)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
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

/* What was issued and has not completed is part of the trace, without a latency. */
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

static int capture(struct session *session, int signal_fd)
{
	int err;

	err = drain_start(&session->drain, &session->outbox, session->programs.ring_fd, 0);
	if (err)
		return fail(NULL, "cannot read the ring of the BPF programs: %s", strerror(-err));
	/* The start of threads takes milliseconds: the counters and time 0 belong to the moment from which rows come. */
	switch_phase(session, PHASE_RUNNING);
	tell_attached(session);
	if (session->options->synthetic_per_second)
		synthetic_begin(&session->synthetic);
	wait_for_end(session, signal_fd);
	if (session->options->synthetic_per_second)
		synthetic_close(&session->synthetic);
	stop_recording(session);
	drain_stop(&session->drain);
	add_in_flight(session);
	drain_flush(&session->drain);
	err = ledger_read(&session->ledger, session->programs.ledger_fd);
	if (err)
		return fail(NULL, "cannot read the ledger of the BPF programs: %s", strerror(-err));
	/* Which is no processor's. */
	session->ledger.cpus[0].reused += session->unseen_at_end;
	session->ledger.cpus[0].not_own += session->not_own_at_end;
	return 0;
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
	signal(SIGXFSZ, SIG_IGN); /* a limit of the file's size is an error like a full disk */
	return signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
}

int session_run(struct session_options *options)
{
	struct session session = { .options = options };
	int signal_fd = open_signals();
	int failed, err;

	if (signal_fd < 0 || ledger_open(&session.ledger) || attach(options, &session.programs) || mark_own(&session))
		return 1;
	if (options->synthetic_per_second) {
		err = synthetic_open(&session.synthetic, &session.programs, options->synthetic_per_second,
				     options->synthetic_count);
		if (err)
			return fail(NULL, "cannot make records: %s", strerror(-err)), 1;
	}
	/* The bench attaches again. A program with capabilities of its own never sees this variable. */
	err = secure_getenv("BLKREEL_KEEP_PRIVILEGE") ? 0 :
	      privilege_drop(session.programs.ledger_fd, session.ledger.cpus);
	if (err)
		return fail(NULL, "cannot give up privileges: %s", strerror(-err)), 1;
	rows_have_files(options->files);
	if (options->live_ms) {
		session.live = live_open();
		if (!session.live)
			return fail(NULL, "no memory"), 1;
	}
	err = block_write_layout(options->rows_fd, &row_layout);
	if (!err)
		err = outbox_open(&session.outbox, options->rows_fd, options->reserve_fd, session.live);
	if (err)
		return fail("free some space, or name another output", "cannot write the rows: %s", strerror(-err)), 1;
	failed = capture(&session, signal_fd);
	outbox_close(&session.outbox);
	if (!failed) {
		tell_live(&session, false);
		tell_end(&session);
	}
	live_close(session.live);
	programs_close(&session.programs);
	ledger_close(&session.ledger);
	return failed ? 1 : 0;
}
