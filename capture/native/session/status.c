/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "status.h"
#include "cleanup.h"
#include "clock.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PIPE_SPARE_BYTES 4096
#define NAMES_TIMEOUT_MS 100

/* A parent that is dead must not end the capture before its last row, so errors are ignored. */
static void write_stdout(const char *bytes, size_t count)
{
	while (count > 0) {
		ssize_t written = write(STDOUT_FILENO, bytes, count);

		if (written < 0 && errno != EINTR)
			return;
		bytes += written > 0 ? written : 0;
		count -= written > 0 ? (size_t)written : 0;
	}
}

/* A parent that does not read must not block the capture. */
static bool stdout_is_full(void)
{
	struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };

	return poll(&out, 1, 0) <= 0;
}

/* What a row of this capture is. */
static const char *layer_of(const struct session_options *options)
{
	uint32_t bio_based = 0;

	for (uint32_t i = 0; i < options->drive_count; i++)
		bio_based += options->drives[i].bio_based;
	if (!bio_based)
		return "request";
	return bio_based == options->drive_count ? "bio" : "mixed";
}

void status_attached(struct session *session)
{
	TEXT(text) = { 0 };
	char *json = NULL;

	if (!text_init(&text)) {
		fprintf(text.file, "{\"note\": \"attached\", \"source_format\": \"bpf:%s\", \"epoch_ns\": %" PRIu64
			", \"realtime_ns\": %" PRIu64 ", \"clock_resolution_ns\": 1, \"capture_layer\": \"%s\""
			", \"queue_time_source\": \"%s\", \"page_uses\": %s}", session->programs.kind, session->epoch_ns,
			clock_ns(CLOCK_REALTIME), layer_of(session->options),
			session->programs.has_io_start ? "block_io_start" : "request",
			session->programs.sees_uses ? "true" : "false");
		json = text_finish(&text);
	}
	if (json) {
		write_stdout(json, strlen(json));
		write_stdout("\n", 1);
	}
	outbox_post_json(&session->outbox, BLOCK_NOTE, json);
}

void status_progress(struct session *session)
{
	char line[128];
	int length;

	if (ledger_read(&session->ledger, session->programs.ledger_fd) || stdout_is_full())
		return;
	length = snprintf(line, sizeof(line), "{\"note\": \"progress\", \"events\": %" PRIu64 ", \"lost\": %" PRIu64 "}\n",
			  (uint64_t)atomic_load(&session->drain.rows), ledger_lost(&session->ledger));
	write_stdout(line, (size_t)length);
}

/* Whether a write of so many bytes to stdout does not block. Pages that are partly filled count as full. */
static bool has_room(size_t bytes)
{
	int waiting = 0, room = fcntl(STDOUT_FILENO, F_GETPIPE_SZ);

	if (room < 0 || ioctl(STDOUT_FILENO, FIONREAD, &waiting))
		return true; /* not a pipe */
	return bytes + 2 * (size_t)waiting + PIPE_SPARE_BYTES <= (size_t)room;
}

/* I/Os issued and not completed, by drive; null for drives without requests. */
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
	for (uint32_t i = 0; i < options->drive_count; i++) {
		fputs(i ? ", " : "", file);
		if (options->drives[i].bio_based)
			fputs("null", file);
		else
			fprintf(file, "%" PRIu64, counts[i]);
	}
	fputs("]", file);
}

void status_live(struct session *session, bool may_skip)
{
	char *lines CLEANUP_FREE = NULL;
	TEXT(text) = { 0 };

	if (!session->live)
		return;
	/* A process that ran only in this interval has its name in this one. */
	names_settle(&session->names, NAMES_TIMEOUT_MS);
	if (may_skip && !has_room(live_max_bytes(session->live)))
		return;
	if (ledger_read(&session->ledger, session->programs.ledger_fd) || text_init(&text))
		return;
	if (!live_print_names(session->live, text.file))
		return;
	fprintf(text.file, "{\"note\": \"live\", \"lost\": %" PRIu64 ", ", ledger_lost(&session->ledger));
	live_print_interval(session->live, text.file, session->options->drive_count);
	print_in_flight(session, text.file);
	fputs("}\n", text.file);
	lines = text_finish(&text);
	if (lines)
		write_stdout(lines, strlen(lines));
}

static void print_drive(FILE *file, const struct drive *drive, const struct recorded_counts *recorded)
{
	fprintf(file, "{\"device\": \"%u:%u\", \"gone\": %s, \"uncertain\": %" PRIu64, drive->major, drive->minor,
		drive->gone ? "true" : "false", drive->uncertain);
	if (drive->bio_based)
		fputs(", \"bio_based\": true", file);
	else
		fprintf(file, ", \"stuck\": %" PRIu64, drive->gone ? 0 : drive->stuck);
	if (drive->path_count)
		fprintf(file, ", \"paths_added\": %u, \"paths_removed\": %u", drive->paths_added, drive->paths_removed);
	/* A path takes its counters with it. */
	if (drive->paths_removed)
		fputs(", \"diskstats\": null", file);
	else
		fprintf(file, ", \"diskstats\": {\"read\": %" PRIu64 ", \"write\": %" PRIu64 ", \"discard\": %" PRIu64
			", \"flush\": %" PRIu64 "}",
			drive->at_stop.reads - drive->at_start.reads, drive->at_stop.writes - drive->at_start.writes,
			drive->at_stop.discards - drive->at_start.discards,
			drive->at_stop.flushes - drive->at_start.flushes);
	fputs(", \"seen\": ", file);
	print_json_counted(file, recorded->by_op);
	fputs("}", file);
}

/* The members of the end block. */
static void print_end(const struct session *session, FILE *file)
{
	const struct session_options *options = session->options;
	const struct written *written = &session->outbox.written;

	fprintf(file, "\"events\": %" PRIu64 ", \"stopped_ns\": %" PRIu64 ", \"monotonic_ns\": %" PRIu64
		", \"realtime_ns\": %" PRIu64 ", \"cpu_ns\": %" PRIu64 ", ", written->rows,
		session->stopped_ns - session->epoch_ns, monotonic_ns(), clock_ns(CLOCK_REALTIME), own_cpu_ns());
	ledger_print(&session->ledger, file, session->epoch_ns);
	fprintf(file, ", \"recursion_misses\": %" PRIu64 ", \"in_flight_at_end\": %" PRIu64
		", \"queued_at_end\": %" PRIu64 ", \"drives\": [", programs_recursion_misses(&session->programs),
		session->in_flight_at_end, session->queued_at_end);
	for (uint32_t i = 0; i < options->drive_count; i++) {
		fputs(i ? ", " : "", file);
		print_drive(file, &options->drives[i], &session->drain.recorded[i]);
	}
	fputs("], \"ios\": ", file);
	print_json_numbers(file, written->ios, OP_COUNT);
	fputs(", \"bytes\": ", file);
	print_json_numbers(file, written->bytes, OP_COUNT);
	if (options->synthetic_per_second)
		fprintf(file, ", \"emitted\": %" PRIu64 ", \"emitter_cpu_ns\": %" PRIu64,
			(uint64_t)atomic_load(&session->synthetic.emitted), session->synthetic.cpu_ns);
	if (session->outbox.error)
		fprintf(file, ", \"unwritten_rows\": %" PRIu64 ", \"write_error\": %d", written->unwritten_rows,
			-session->outbox.error);
}

int status_end(struct session *session)
{
	static const char line_begin[] = "{\"note\": \"end\", ";
	char *json CLEANUP_FREE = NULL;
	TEXT(text) = { 0 };

	if (text_init(&text))
		return -ENOMEM;
	fputc('{', text.file);
	print_end(session, text.file);
	fputc('}', text.file);
	json = text_finish(&text);
	if (!json)
		return -ENOMEM;
	/* The line below carries the error of a disk that is full. */
	(void)spool_file_write_json(&session->outbox.file, BLOCK_END, json);
	write_stdout(line_begin, strlen(line_begin));
	write_stdout(json + 1, strlen(json + 1));
	write_stdout("\n", 1);
	return 0;
}
