/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "telling.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define ROOM_SPARE_BYTES 4096

static uint64_t realtime_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + now.tv_nsec;
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

void tell_attached(struct session *session)
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
void tell_progress(struct session *session)
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

/* A write of so many bytes to stdout must not block: pages that are partly filled count as full. */
static bool has_room(size_t bytes)
{
	int waiting = 0, room = fcntl(STDOUT_FILENO, F_GETPIPE_SZ);

	if (room < 0 || ioctl(STDOUT_FILENO, FIONREAD, &waiting))
		return true; /* not a pipe */
	return bytes + 2 * (size_t)waiting + ROOM_SPARE_BYTES <= (size_t)room;
}

/* What was issued and has not completed; not known of drives without requests. */
static void print_in_flight(const struct session *session, FILE *file)
{
	const struct session_options *options = session->options;
	uint64_t counts[MAX_DEVICES] = { 0 };

	for (size_t i = 0; i < session->programs.slot_count; i++) {
		const volatile struct slot *slot = &session->programs.slots[i];

		if (slot->state == SLOT_ISSUED && slot->device >= 0 && slot->device < MAX_DEVICES)
			counts[slot->device]++;
	}
	fputs(", \"in_flight\": [", file);
	for (size_t i = 0; i < options->drive_count; i++) {
		if (options->drives[i].bio_based)
			fprintf(file, "%snull", i ? ", " : "");
		else
			fprintf(file, "%s%" PRIu64, i ? ", " : "", counts[i]);
	}
	fputs("]", file);
}

void tell_live(struct session *session, bool may_wait)
{
	char *names = NULL, *members = NULL, *line;
	size_t names_bytes, members_bytes;
	FILE *names_file, *members_file;
	bool passed;

	if (!session->live || (may_wait && !has_room(live_bytes(session->live))))
		return;
	if (ledger_read(&session->ledger, session->programs.ledger_fd))
		return;
	names_file = open_memstream(&names, &names_bytes);
	members_file = open_memstream(&members, &members_bytes);
	passed = live_print(session->live, names_file, members_file, session->options->drive_count);
	print_in_flight(session, members_file);
	fclose(names_file);
	fclose(members_file);
	if (passed && asprintf(&line, "%s{\"note\": \"live\", \"lost\": %" PRIu64 ", %s}", names, ledger_lost(&session->ledger),
			       members) >= 0)
		say(line, false);
	free(names);
	free(members);
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
	fprintf(file, "{\"device\": \"%u:%u\", \"gone\": %s, \"uncertain\": %" PRIu64 ", \"diskstats\": {\"read\": %" PRIu64
		", \"write\": %" PRIu64 ", \"discard\": %" PRIu64 ", \"flush\": %" PRIu64 "}",
		drive->major, drive->minor, drive->gone ? "true" : "false", drive->uncertain,
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

void tell_end(const struct session *session)
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
