/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "session.h"
#include "drain.h"
#include "failure.h"
#include "ledger.h"
#include "outbox.h"
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

struct session {
	struct session_options *options;
	struct programs programs;
	struct outbox outbox;
	struct drain drain;
	struct ledger ledger;
	struct synthetic synthetic;
	uint64_t epoch_ns;
	uint64_t stopped_ns;
	uint64_t in_flight_at_end;
	uint64_t queued_at_end;
};

static uint64_t realtime_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + now.tv_nsec;
}

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
 * A line for the parent. One that may be left out is, where the pipe is full:
 * a parent that does not read must not hold the capture up, and one that is
 * dead must not end it before its last row.
 */
static void say(char *json, bool may_be_left_out)
{
	struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
	size_t length = strlen(json), done = 0;

	json[length++] = '\n'; /* in place of the terminator */
	if (may_be_left_out && poll(&out, 1, 0) <= 0)
		done = length;
	while (done < length) {
		ssize_t n = write(STDOUT_FILENO, json + done, length - done);

		if (n < 0 && errno != EINTR)
			break;
		done += n > 0 ? n : 0;
	}
	free(json);
}

/* What a row of this capture is. */
static const char *layer_of(const struct session_options *options)
{
	size_t bio_based = 0;

	for (size_t i = 0; i < options->drive_count; i++)
		bio_based += options->drives[i].bio_based;
	if (!bio_based)
		return "request";
	return bio_based == options->drive_count ? "bio" : "mixed";
}

/* Into the rows too: a parent that is killed right now has noted nothing of it. */
static void say_attached(struct session *session)
{
	char *json = NULL;
	size_t length;
	FILE *file = open_memstream(&json, &length);

	fprintf(file, "{\"note\": \"attached\", \"source_format\": \"bpf:%s\", \"epoch_ns\": %" PRIu64
		", \"realtime_ns\": %" PRIu64 ", \"clock_resolution_ns\": 1, \"capture_layer\": \"%s\""
		", \"queue_time_source\": \"%s\"}", session->programs.kind, session->epoch_ns, realtime_ns(),
		layer_of(session->options),
		session->programs.has_io_start ? "block_io_start" : "request");
	fclose(file);
	outbox_post_json(&session->outbox, BLOCK_NOTE, strdup(json));
	say(json, false);
}

/* newest_ns: nothing in the first written_bytes of the rows is of a later time. */
static void say_progress(struct session *session)
{
	uint64_t written_bytes = atomic_load_explicit(&session->outbox.whole_bytes, memory_order_acquire);
	uint64_t newest_ns = monotonic_ns() - session->epoch_ns;
	char *json = NULL;
	size_t length;
	FILE *file;

	if (ledger_read(&session->ledger, session->programs.ledger_fd))
		return;
	file = open_memstream(&json, &length);
	fprintf(file, "{\"note\": \"progress\", \"events\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"written_bytes\": %" PRIu64
		", \"newest_ns\": %" PRIu64 "}", (uint64_t)atomic_load(&session->drain.rows), ledger_lost(&session->ledger),
		written_bytes, newest_ns);
	fclose(file);
	say(json, true);
}

/* Until stdin ends, a signal comes or the disk is full. */
static void wait_for_end(struct session *session, int signal_fd)
{
	struct pollfd watched[] = {
		{ .fd = STDIN_FILENO, .events = POLLIN },
		{ .fd = signal_fd, .events = POLLIN },
		{ .fd = session->outbox.failed_fd, .events = POLLIN },
		{ .fd = session->options->synthetic_per_second ? session->synthetic.done_fd : -1, .events = POLLIN },
	};
	uint64_t next_ns = monotonic_ns() + PROGRESS_EVERY_MS * 1000000ull;

	for (;;) {
		uint64_t now_ns = monotonic_ns();
		char ignored[64];

		if (now_ns >= next_ns) {
			say_progress(session);
			next_ns = now_ns + PROGRESS_EVERY_MS * 1000000ull;
		}
		if (poll(watched, 4, (int)((next_ns - now_ns) / 1000000) + 1) < 0 && errno != EINTR)
			return;
		if (watched[1].revents || watched[2].revents || watched[3].revents)
			return;
		if (watched[0].revents && read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0)
			return;
	}
}

static uint64_t count_slots(const struct session *session, enum slot_state state)
{
	uint64_t count = 0;

	for (size_t i = 0; i < session->programs.slot_count; i++)
		count += session->programs.slots[i].state == state;
	return count;
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
	set_phase(session, phase);
	if (!start) {
		session->stopped_ns = monotonic_ns();
		atomic_store(&session->drain.stopped_ns, session->stopped_ns);
	}
	for (size_t i = 0; i < session->options->drive_count; i++) {
		struct drive *drive = &session->options->drives[i];
		struct disk_counts after = before[i];

		drive_read_counts(drive, &after);
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
	while (count_slots(session, SLOT_ISSUED) && monotonic_ns() < deadline_ns)
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

	session->in_flight_at_end++;
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

static uint64_t own_cpu_ns(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000ull +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000ull;
}

static void print_counts(FILE *file, const struct drive *drive, const struct seen_counts *seen)
{
	fprintf(file, "{\"device\": \"%u:%u\", \"uncertain\": %" PRIu64 ", \"diskstats\": {\"read\": %" PRIu64
		", \"write\": %" PRIu64 ", \"discard\": %" PRIu64 ", \"flush\": %" PRIu64 "}", drive->major, drive->minor, drive->uncertain,
		drive->at_stop.reads - drive->at_start.reads, drive->at_stop.writes - drive->at_start.writes,
		drive->at_stop.discards - drive->at_start.discards, drive->at_stop.flushes - drive->at_start.flushes);
	/* The kernel's counters take write-zeroes for writes. */
	fprintf(file, ", \"seen\": {\"read\": %" PRIu64 ", \"write\": %" PRIu64 ", \"discard\": %" PRIu64
		", \"flush\": %" PRIu64 "}}", seen->by_op[OP_READ], seen->by_op[OP_WRITE] + seen->by_op[OP_WRITE_ZEROES],
		seen->by_op[OP_DISCARD], seen->by_op[OP_FLUSH]);
}

static void print_by_op(FILE *file, const char *name, const uint64_t counts[OP_COUNT])
{
	fprintf(file, ", \"%s\": [", name);
	for (int op = 0; op < OP_COUNT; op++)
		fprintf(file, "%s%" PRIu64, op ? ", " : "", counts[op]);
	fputs("]", file);
}

/* The members of the end block. */
static void print_end(const struct session *session, FILE *file)
{
	const struct session_options *options = session->options;
	const struct written *written = &session->outbox.written;

	fprintf(file, "\"events\": %" PRIu64 ", \"stopped_ns\": %" PRIu64 ", \"monotonic_ns\": %" PRIu64
		", \"realtime_ns\": %" PRIu64 ", \"cpu_ns\": %" PRIu64 ", ", written->rows,
		session->stopped_ns - session->epoch_ns, monotonic_ns(), realtime_ns(), own_cpu_ns());
	ledger_print(&session->ledger, file, session->epoch_ns);
	fprintf(file, ", \"recursion_misses\": %" PRIu64 ", \"in_flight_at_end\": %" PRIu64
		", \"queued_at_end\": %" PRIu64 ", \"drives\": [", programs_recursion_misses(&session->programs),
		session->in_flight_at_end, session->queued_at_end);
	for (size_t i = 0; i < options->drive_count; i++) {
		fputs(i ? ", " : "", file);
		print_counts(file, &options->drives[i], &session->drain.seen[i]);
	}
	fputs("]", file);
	print_by_op(file, "ios", written->ios);
	print_by_op(file, "bytes", written->bytes);
	if (options->synthetic_per_second)
		fprintf(file, ", \"emitted\": %" PRIu64 ", \"emitter_cpu_ns\": %" PRIu64,
			(uint64_t)atomic_load(&session->synthetic.emitted), session->synthetic.cpu_ns);
	if (session->outbox.error)
		fprintf(file, ", \"unwritten_rows\": %" PRIu64 ", \"write_error\": %d", written->unwritten_rows,
			-session->outbox.error);
}

/* Into the rows, where it makes them complete, and to the parent. */
static void tell_end(const struct session *session)
{
	char *json = NULL, *line;
	size_t length;
	FILE *file = open_memstream(&json, &length);

	fputc('{', file);
	print_end(session, file);
	fputc('}', file);
	fclose(file);
	/* A disk that is full has said so already. */
	(void)block_write_json(session->options->rows_fd, BLOCK_END, json);
	if (asprintf(&line, "{\"note\": \"end\", %s", json + 1) >= 0)
		say(line, false);
	free(json);
}

static int capture(struct session *session, int signal_fd)
{
	int err;

	err = drain_start(&session->drain, &session->outbox, session->programs.ring_fd, 0);
	if (err)
		return fail(NULL, "cannot read the ring of the BPF programs: %s", strerror(-err));
	/* The start of threads takes milliseconds: the counters and time 0 belong to the moment from which rows come. */
	session->epoch_ns = monotonic_ns();
	session->drain.epoch_ns = session->epoch_ns;
	switch_phase(session, PHASE_RUNNING);
	say_attached(session);
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
	rows_have_files(options->files);
	err = block_write_layout(options->rows_fd, &row_layout);
	if (!err)
		err = outbox_open(&session.outbox, options->rows_fd, options->reserve_fd);
	if (err)
		return fail("free some space, or name another output", "cannot write the rows: %s", strerror(-err)), 1;
	failed = capture(&session, signal_fd);
	outbox_close(&session.outbox);
	if (!failed)
		tell_end(&session);
	programs_close(&session.programs);
	ledger_close(&session.ledger);
	return failed ? 1 : 0;
}
