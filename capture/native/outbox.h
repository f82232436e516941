/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What waits to be written, and the thread that writes it: the drain must
 * never wait for a pipe. Memory is fixed: when all blocks are full the drain
 * waits, the ring fills, and what then is lost is counted in the kernel.
 */
#ifndef BLKREEL_OUTBOX_H
#define BLKREEL_OUTBOX_H

#include "blocks.h"
#include "rows.h"

#include <pthread.h>
#include <stdbool.h>

struct message {
	enum block_kind kind;
	struct row_block *block;
	char *json;
	struct message *next;
};

struct outbox {
	int fd;
	int failed_fd; /* an eventfd: readable once a write failed */
	int error; /* negative errno of that write */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t posted;
	pthread_cond_t returned;
	struct message *first;
	struct message **last;
	struct row_block *free;
	bool closed;
};

/* Starts the writer. Returns 0 or a negative errno. */
int outbox_open(struct outbox *outbox, int fd);

/* Takes an empty block; waits until one is free. */
struct row_block *outbox_take(struct outbox *outbox);
void outbox_post_rows(struct outbox *outbox, struct row_block *block);

/* Takes over the text, which was malloc'ed. */
void outbox_post_json(struct outbox *outbox, enum block_kind kind, char *json);

/* Writes what waits and ends the thread. Returns 0 or the negative errno of the first write that failed. */
int outbox_close(struct outbox *outbox);

#endif
