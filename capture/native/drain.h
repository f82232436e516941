/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The thread that empties the ring. It does no I/O: a reader that waits for a pipe loses events at 1 M/s. */
#ifndef BLKREEL_DRAIN_H
#define BLKREEL_DRAIN_H

#include "outbox.h"
#include "records.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#define THREADS_PER_NOTE 64
#define FILES_PER_NOTE 64

struct ring_buffer;

/* Completed requests of one drive until the capture was stopped, as the drive's own counters count them. */
struct seen_counts {
	uint64_t by_op[OP_OTHER];
};

struct drain {
	struct outbox *outbox;
	struct ring_buffer *ring;
	int epoll_fd;
	int stop_fd;
	uint64_t epoch_ns;
	atomic_uint_least64_t stopped_ns; /* completions behind it are not in `seen` */
	atomic_uint_least64_t rows;
	struct seen_counts seen[MAX_DEVICES];
	struct row_block *block;
	uint64_t handed_over_ns;
	struct thread_record threads[THREADS_PER_NOTE];
	size_t thread_count;
	struct file_record *files; /* FILES_PER_NOTE */
	size_t file_count;
	pthread_t thread;
};

/* Starts the thread. Returns 0 or a negative errno. */
int drain_start(struct drain *drain, struct outbox *outbox, int ring_fd, uint64_t epoch_ns);

/* Empties the ring and ends the thread. From then on drain_add may be called. */
void drain_stop(struct drain *drain);

/* Adds one record, as the ring's reader does. `file` is NULL where files are not recorded. */
void drain_add(struct drain *drain, const struct io_record *record, const struct io_file_record *file);

/* Hands over what is gathered. */
void drain_flush(struct drain *drain);

uint64_t monotonic_ns(void);

#endif
