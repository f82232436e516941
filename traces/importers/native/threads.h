/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Names of threads: from notices in the stream, and from /proc while it is live. */
#pragma once

#include "event.h"
#include "rows.h"

#define COMM_BYTES 16
#define THREADS_PER_NOTE 64
#define MAX_UNNAMED 1024

struct thread_name {
	int32_t tid;
	int32_t pid; /* of its process; -1: unknown */
	char comm[COMM_BYTES];
	char process[COMM_BYTES];
};

struct threads {
	struct rows *rows;
	bool live;
	bool by_proc; /* while it is live, unless /proc has other numbers than the events */
	uint8_t *seen; /* one bit a tid */
	struct thread_name waiting[THREADS_PER_NOTE];
	size_t waiting_count;
	int32_t unnamed[MAX_UNNAMED]; /* ended before they could be looked up */
	size_t unnamed_count;
};

/* Writes notes beside the rows. Returns 0 or a negative errno. */
int threads_init(struct threads *threads, struct rows *rows, bool live);
void threads_deinit(struct threads *threads);

/* Notes that a thread issues I/O, and looks up its name. Returns 0 or a negative errno. */
int threads_note(struct threads *threads, uint32_t tid);

/* Takes the name from a notice. Returns 0 or a negative errno. */
int threads_name(struct threads *threads, const struct blk_event *event);

/* Writes the names that are waiting. Returns 0 or a negative errno. */
int threads_flush(struct threads *threads);
