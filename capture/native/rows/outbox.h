/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The queue of blocks for the spool, and the thread that writes them, so that
 * the drain never waits for a disk. Memory is fixed: when all row blocks are
 * queued the drain waits, the ring fills, and the kernel side counts the loss.
 */
#pragma once

#include "live.h"
#include "rows.h"
#include "spool_file.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Totals of the file. Written by the writer thread; to be read after outbox_finish(). */
struct written {
	uint64_t rows;
	uint64_t unwritten_rows; /* queued after a write had failed */
	uint64_t ios[OP_COUNT];
	uint64_t bytes[OP_COUNT];
};

struct outbox {
	struct spool_file file;
	int failed_fd; /* eventfd, readable after a failed write */
	int error; /* negative errno of the first failure; under the lock until outbox_finish() */
	struct live *live; /* counts the rows for the live view; may be NULL */
	struct written written;
	pthread_t thread;
	bool running;
	pthread_mutex_t lock;
	pthread_cond_t posted;
	pthread_cond_t returned;
	struct message *first;
	struct message **last;
	struct row_block *free;
	bool closed;
};

/*
 * Writes the layout at the present position of fd and starts the writer. Half of
 * what the file holds stays free through reserve_fd (-1: none): a row takes 69
 * bytes in the spool and at most 30 in the trace. live may be NULL. Returns 0 or
 * a negative errno.
 */
int outbox_init(struct outbox *outbox, int fd, int reserve_fd, struct live *live);
void outbox_deinit(struct outbox *outbox);

/* Takes an empty block; waits until one is free. */
struct row_block *outbox_take(struct outbox *outbox);

/* Queues a block. One without rows is not written; it advances the live view's clock. */
void outbox_post_rows(struct outbox *outbox, struct row_block *block);

/* Queues a text and takes it over. NULL counts as a write that failed for lack of memory. */
void outbox_post_json(struct outbox *outbox, enum block_kind kind, char *json);

/*
 * Writes the queue and ends the thread. Returns 0 or the negative errno of the
 * first failure; the file then ends with its last whole block, and more blocks
 * may be written there.
 */
int outbox_finish(struct outbox *outbox);
