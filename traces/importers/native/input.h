/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One stream of events: the file of one CPU, or the pipe of a live tracer. */
#pragma once

#include "event.h"

#include <sys/types.h>

struct loss {
	uint32_t cpu;
	uint64_t count;
	uint64_t first_ns; /* of the event before the loss; 0: none */
	uint64_t last_ns; /* of the event after it */
};

struct input {
	const char *name;
	int fd;
	bool live; /* no data now does not mean the end */
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
	/* lost before `event`; reset by the reader */
	struct loss loss;
	uint64_t *losses; /* incremented at once for each loss; may be NULL */
	/* the last sequence number of each CPU in this stream */
	uint32_t *sequences;
	uint32_t sequence_count;
	bool sequences_mixed; /* several devices share the stream: gaps are no losses */
	char error[512];
};

/* Opens a file; live: reads do not block. Returns 0 or -1 with input->error. */
int input_init(struct input *input, const char *path, bool live);
void input_deinit(struct input *input);

/*
 * Fills the buffer. Returns 0, or -1 with input->error. Sets `drained` if a live stream has no more data now,
 * `ended` at the end of a file.
 */
int input_fill(struct input *input);

/* Reads the next event into input->event. Returns 1, 0 if more data is needed, or -1 with input->error. */
int input_peek(struct input *input);
void input_next(struct input *input);
