/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The decoder of blktrace and ftrace events. Input: a byte of options, then one to three files of equal size. A live
 * stream in pieces must give the same events as the file.
 */
#include "fuzz.h"
#include "decode.h"

#include <fcntl.h>
#include <stdarg.h>

#define MAX_EVENTS 4096
#define MAX_FILES 3

/* Instead of error.c, because the refusal of a damaged file would fill the log. */
int report_error(const char *remedy, const char *format, ...)
{
	char text[1024];
	va_list arguments;

	(void)remedy;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return -1;
}

static void silence_stdout(void)
{
	static FILE *silent;

	if (!silent)
		silent = freopen("/dev/null", "w", stdout);
	REQUIRE(silent);
}

static void decode_files(uint8_t options, const uint8_t *data, size_t size)
{
	size_t count = 1 + options % MAX_FILES, part = size / count;
	struct decode_options decoded = {
		.rows_fd = memory_file(NULL, 0),
		.reserve_fd = -1,
		.silent_losses = options & 4,
		.only_these = options & 8,
		.epoch_ns = options & 16 ? 1 : 0,
		.stopped_ns = options & 32 ? 1000000 : 0,
		.path_count = count,
	};
	char paths[MAX_FILES][32], *pointers[MAX_FILES];
	int fds[MAX_FILES];

	REQUIRE(!pair_devices_add(&decoded.devices, 8u << 20, options & 64));
	for (size_t i = 0; i < count; i++) {
		fds[i] = memory_file(data + i * part, i == count - 1 ? size - i * part : part);
		snprintf(paths[i], sizeof(paths[i]), "/proc/self/fd/%d", fds[i]);
		pointers[i] = paths[i];
	}
	decoded.paths = pointers;
	decode(&decoded);
	pair_devices_deinit(&decoded.devices);
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
	close(decoded.rows_fd);
}

struct event_summary {
	uint64_t time_ns, sector, lost;
	uint32_t bytes, category;
	uint16_t action, payload_bytes;
};

/* Reads what there is. Returns the number of events so far. */
static size_t read_events(struct input *input, struct event_summary *events, size_t count)
{
	while (count < MAX_EVENTS && input_peek(input) == 1) {
		const struct blk_event *event = &input->event;
		struct event_summary *summary = &events[count++];

		memset(summary, 0, sizeof(*summary));
		summary->time_ns = event->time_ns;
		summary->sector = event->sector;
		summary->bytes = event->bytes;
		summary->category = event->category;
		summary->action = event->action;
		summary->payload_bytes = event->payload_bytes;
		summary->lost = input->loss.count;
		/* Every byte of the payload can be read. */
		for (size_t i = 0; i < event->payload_bytes; i++)
			summary->lost += event->payload[i];
		input->loss = (struct loss){ 0 };
		input_next(input);
	}
	return count;
}

static size_t read_file(const uint8_t *data, size_t size, struct event_summary *events)
{
	int fd = memory_file(data, size);
	struct input input;
	char path[32];
	size_t count;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	REQUIRE(!input_init(&input, path, false));
	REQUIRE(!input_fill(&input));
	count = read_events(&input, events, 0);
	input_deinit(&input);
	close(fd);
	return count;
}

static size_t read_pieces(const uint8_t *data, size_t size, size_t piece, struct event_summary *events)
{
	struct input input;
	size_t count = 0;
	char path[32];
	int pipe_fds[2];

	REQUIRE(!pipe2(pipe_fds, O_CLOEXEC));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", pipe_fds[0]);
	REQUIRE(!input_init(&input, path, true));
	for (size_t at = 0; at < size; at += piece) {
		size_t part = size - at < piece ? size - at : piece;

		REQUIRE(write(pipe_fds[1], data + at, part) == (ssize_t)part);
		REQUIRE(!input_fill(&input));
		count = read_events(&input, events, count);
		if (input.error[0])
			break;
	}
	input_deinit(&input);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct event_summary whole[MAX_EVENTS], pieces[MAX_EVENTS];
	size_t whole_count, count;
	uint8_t options;

	if (!size || size > 1 << 20)
		return 0;
	options = *data++;
	size--;
	silence_stdout();
	decode_files(options, data, size);
	whole_count = read_file(data, size < 65536 ? size : 65536, whole);
	count = read_pieces(data, size < 65536 ? size : 65536, options & 128 ? 13 : 61, pieces);
	REQUIRE(count <= whole_count && !memcmp(whole, pieces, count * sizeof(*whole)));
	return 0;
}
