/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The thread that empties the ring. It does nothing that can block on a file or a
 * directory: at 1,000,000 events per second every pause loses events.
 * tests/native/drain_symbols.py checks this for drain.c.
 */
#pragma once

#include "names.h"
#include "outbox.h"
#include "records.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct ring_buffer;

/* Requests of one drive that completed before the capture was stopped, as the drive's own counters count them. */
struct recorded_counts {
	uint64_t by_op[OP_OTHER];
};

struct drain {
	struct outbox *outbox;
	struct names *names;
	struct ring_buffer *ring;
	int epoll_fd;
	int stop_fd;
	atomic_uint_least64_t epoch_ns; /* 0: the capture begins */
	uint64_t before_start; /* records of I/Os that were submitted before */
	atomic_uint_least64_t stopped_ns; /* later completions are not in `recorded` */
	atomic_uint_least64_t rows;
	struct recorded_counts recorded[MAX_DEVICES];
	struct row_block *block;
	uint64_t posted_ns;
	pthread_t thread;
	bool running;
};

/* Starts the thread. Returns 0 or a negative errno. */
int drain_init(struct drain *drain, struct outbox *outbox, struct names *names, int ring_fd);
void drain_deinit(struct drain *drain);

/* Empties the ring and ends the thread. drain_add() and drain_flush() may be called afterwards. */
void drain_stop(struct drain *drain);

/* Adds one record. file is NULL if files are not recorded. */
void drain_add(struct drain *drain, const struct io_record *record, const struct io_file_record *file);

/* Hands over the rows and names that are waiting. */
void drain_flush(struct drain *drain);
