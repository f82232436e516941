/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One stream of events: a file of one CPU, or a pipe that is written to while it is read. */
#ifndef BLKREEL_BLKTRACE_INPUT_H
#define BLKREEL_BLKTRACE_INPUT_H

#include "blktrace_event.h"

#include <sys/types.h>

struct loss {
	uint32_t cpu;
	uint64_t count;
	uint64_t first_ns; /* the loss lies after this event, 0: before the first */
	uint64_t last_ns; /* and before this one */
};

struct input {
	const char *name;
	int fd;
	bool live; /* a read without data means later, not never */
	bool ended;
	bool drained; /* the last read brought nothing */
	uint8_t *buffer;
	size_t capacity, start, end;
	uint64_t position; /* of buffer[start] in the file */
	uint64_t events;
	uint64_t last_ns;
	uint64_t cut_bytes; /* at the end of the file, less than an event */
	bool has_event;
	struct blk_event event;
	size_t event_bytes;
	/* lost before `event`; taken by who reads it */
	struct loss loss;
	uint64_t *losses; /* where to count that there is one, as soon as it is known; may be NULL */
	/* the last sequence number of each CPU in this stream */
	uint32_t *sequences;
	uint32_t sequence_count;
	bool sequences_mixed; /* several devices share the stream: its gaps mean nothing */
	char error[512];
};

/* Opens a file; live: read what is there and come back. Returns 0 or -1 with input->error. */
int input_open(struct input *input, const char *path, bool live);
void input_close(struct input *input);

/*
 * Reads what the buffer has room for. Returns 0, or -1 with input->error.
 * Sets `drained` where a live stream has no more for now, `ended` at the end of a file.
 */
int input_fill(struct input *input);

/*
 * Looks at the next event, which then stands in input->event until input_next.
 * Returns 1, 0 where there is none before the next fill, or -1 with input->error.
 */
int input_peek(struct input *input);
void input_next(struct input *input);

#endif
