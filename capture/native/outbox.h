/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What waits to be written into the spool, and the thread that writes it: the
 * drain must never wait for a disk. Memory is fixed: when all blocks are full
 * the drain waits, the ring fills, and what then is lost is counted in the kernel.
 */
#ifndef BLKREEL_OUTBOX_H
#define BLKREEL_OUTBOX_H

#include "blocks.h"
#include "live.h"
#include "rows.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct message {
	enum block_kind kind;
	struct row_block *block;
	char *json;
	struct message *next;
};

/* What stands in the file. Written by the writer's thread; to be read once it has ended. */
struct written {
	uint64_t rows;
	uint64_t unwritten_rows; /* came after a write had failed */
	uint64_t ios[OP_COUNT];
	uint64_t bytes[OP_COUNT];
};

struct outbox {
	int fd;
	int reserve_fd; /* -1: none */
	uint64_t reserved_bytes;
	int failed_fd; /* an eventfd: readable once a write failed */
	int error; /* negative errno of that write */
	struct live *live; /* what passes is counted there; NULL: nobody watches */
	struct written written;
	atomic_uint_least64_t whole_bytes; /* length of the file up to its last whole block */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t posted;
	pthread_cond_t returned;
	struct message *first;
	struct message **last;
	struct row_block *free;
	bool closed;
};

/*
 * Starts the writer, at the present position of fd. Half of what it
 * writes is kept free in reserve_fd, so that a full disk leaves room for the
 * trace: a row takes 69 bytes here and rarely more than 30 there. live may be
 * NULL. Returns 0 or a negative errno.
 */
int outbox_open(struct outbox *outbox, int fd, int reserve_fd, struct live *live);

/* Takes an empty block; waits until one is free. */
struct row_block *outbox_take(struct outbox *outbox);
/* A block without rows is not written: it says that nothing came, to who watches. */
void outbox_post_rows(struct outbox *outbox, struct row_block *block);

/* Takes over the text, which was malloc'ed. */
void outbox_post_json(struct outbox *outbox, enum block_kind kind, char *json);

/*
 * Writes what waits and ends the thread. Returns 0 or the negative errno of the
 * first write that failed; the file then ends with its last whole block, and
 * more may be written there.
 */
int outbox_close(struct outbox *outbox);

#endif
