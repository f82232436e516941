/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BUFFER_BYTES (256u << 10)
#define LIVE_BUFFER_BYTES (8u << 20) /* events of a CPU while others are late; touched only as needed */
#define MAX_LOSS_TEXT_BYTES 64

__attribute__((format(printf, 2, 3))) static int refuse(struct input *input, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(input->error, sizeof(input->error), format, args);
	va_end(args);
	return -1;
}

int input_init(struct input *input, const char *path, bool live)
{
	*input = (struct input){ .name = path, .live = live };
	input->fd = open(path, O_RDONLY | O_CLOEXEC | (live ? O_NONBLOCK : 0));
	if (input->fd < 0)
		return refuse(input, "cannot open %s: %s", path, strerror(errno));
	input->capacity = live ? LIVE_BUFFER_BYTES : FILE_BUFFER_BYTES;
	input->buffer = malloc(input->capacity);
	if (!input->buffer)
		return refuse(input, "no memory to read %s", path);
	return 0;
}

void input_deinit(struct input *input)
{
	if (input->fd >= 0)
		close(input->fd);
	free(input->buffer);
	free(input->sequences);
	input->fd = -1;
	input->buffer = NULL;
	input->sequences = NULL;
}

static void make_room(struct input *input)
{
	if (!input->start)
		return;
	memmove(input->buffer, input->buffer + input->start, input->end - input->start);
	/* The payload of the present event moves too. */
	if (input->has_event)
		input->event.payload -= input->start;
	input->end -= input->start;
	input->start = 0;
}

int input_fill(struct input *input)
{
	input->drained = false;
	if (input->ended)
		return 0;
	if (input->end == input->capacity || !input->live)
		make_room(input);
	while (input->end < input->capacity) {
		ssize_t count = read(input->fd, input->buffer + input->end, input->capacity - input->end);

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			input->drained = true;
			return 0;
		}
		if (count < 0)
			return refuse(input, "cannot read %s: %s", input->name, strerror(errno));
		if (count == 0) {
			/* A live tracer's pipe also ends while tracing is off: the reader decides when it has ended. */
			input->ended = !input->live;
			input->drained = true;
			return 0;
		}
		input->end += (size_t)count;
	}
	return 0;
}

static void add_loss(struct input *input, uint32_t cpu, uint64_t count)
{
	if (!input->loss.count && input->losses)
		++*input->losses;
	if (!input->loss.count)
		input->loss = (struct loss){ .cpu = cpu, .first_ns = input->last_ns };
	input->loss.count += count;
}

/* ftrace reports losses as text between the events. Returns 1, 0 if the text is cut, or -1. */
static int read_loss_text(struct input *input)
{
	const char *text = (const char *)input->buffer + input->start;
	size_t available = input->end - input->start;
	const char *newline = memchr(text, '\n', available);
	char line[MAX_LOSS_TEXT_BYTES + 1];
	uint64_t count = 1; /* at least one, if there is no count */
	unsigned cpu;
	size_t bytes;

	if (!newline && available < MAX_LOSS_TEXT_BYTES && !input->ended)
		return 0;
	bytes = newline ? (size_t)(newline - text) + 1 : available;
	if (bytes > MAX_LOSS_TEXT_BYTES)
		return -1;
	memcpy(line, text, bytes);
	line[bytes] = '\0';
	if (sscanf(line, "CPU:%u [LOST %" SCNu64 " EVENTS]", &cpu, &count) != 2 &&
	    !(sscanf(line, "CPU:%u [LOST EVENTS", &cpu) == 1 && strstr(line, "[LOST EVENTS]")))
		return -1;
	add_loss(input, cpu, count);
	input->start += bytes;
	input->position += bytes;
	return 1;
}

/* blktrace truncates its preallocated files at its end: after a kill, zeros follow. */
static bool only_zeros_follow(struct input *input)
{
	uint8_t block[65536];
	ssize_t count;

	for (size_t i = input->start; i < input->end; i++)
		if (input->buffer[i])
			return false;
	if (input->live || input->ended)
		return !input->live;
	while ((count = read(input->fd, block, sizeof(block))) > 0) {
		input->cut_bytes += (uint64_t)count;
		for (ssize_t i = 0; i < count; i++)
			if (block[i])
				return false;
	}
	return count == 0;
}

static int refuse_garbage(struct input *input, enum event_kind kind)
{
	const uint8_t *at = input->buffer + input->start;
	const char *reason = "no blktrace event begins here";

	if (kind == EVENT_OTHER_VERSION)
		return refuse(input, "%s, byte %" PRIu64 ": a blktrace event of version %u; 7 and 8 are known", input->name,
			      input->position, at[0] == 0x65 ? at[3] : at[0]);
	if (kind == EVENT_DAMAGED)
		reason = "the header of this event contradicts itself";
	return refuse(input, "%s, byte %" PRIu64 ": %s (%02x %02x %02x %02x)", input->name, input->position, reason,
		      at[0], at[1], at[2], at[3]);
}

static int note_sequence(struct input *input)
{
	const struct blk_event *event = &input->event;
	uint32_t last, gap;

	/* Events of ftrace and notices of blktrace have no number. */
	if (!event->sequence || (event->category & CATEGORY_NOTIFY) || input->sequences_mixed)
		return 0;
	if (event->cpu >= input->sequence_count) {
		uint32_t *wider = realloc(input->sequences, (event->cpu + 1) * sizeof(*wider));

		if (!wider)
			return refuse(input, "no memory to read %s", input->name);
		memset(wider + input->sequence_count, 0, (event->cpu + 1 - input->sequence_count) * sizeof(*wider));
		input->sequences = wider;
		input->sequence_count = event->cpu + 1;
	}
	last = input->sequences[event->cpu];
	gap = event->sequence - last - 1;
	input->sequences[event->cpu] = event->sequence;
	if (!last || !gap)
		return 0;
	if (gap > UINT32_MAX / 2)
		input->sequences_mixed = true;
	else
		add_loss(input, event->cpu, gap);
	return 0;
}

int input_peek(struct input *input)
{
	while (!input->has_event) {
		enum event_kind kind = EVENT_CUT;

		if (input->end > input->start)
			kind = event_read(input->buffer + input->start, input->end - input->start, &input->event,
					  &input->event_bytes);
		if (kind == EVENT_CUT) {
			if (input->ended && input->end > input->start) {
				input->cut_bytes = input->end - input->start;
				input->start = input->end;
			}
			return 0;
		}
		if (kind == EVENT_WHOLE) {
			if (note_sequence(input))
				return -1;
			input->has_event = true;
			break;
		}
		if (kind == EVENT_UNKNOWN && input->buffer[input->start] == 'C') {
			int found = read_loss_text(input);

			if (found == 1)
				continue;
			if (found == 0)
				return 0;
		}
		if (kind == EVENT_UNKNOWN && !input->buffer[input->start] && only_zeros_follow(input)) {
			input->cut_bytes += input->end - input->start;
			input->start = input->end;
			input->ended = true;
			return 0;
		}
		return refuse_garbage(input, kind);
	}
	return 1;
}

void input_next(struct input *input)
{
	/* `blkparse -d` leaves notices at absolute times between events at relative ones. */
	if (!(input->event.category & CATEGORY_NOTIFY))
		input->last_ns = input->event.time_ns;
	input->start += input->event_bytes;
	input->position += input->event_bytes;
	input->events++;
	input->has_event = false;
}
