/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the back ends of an emulated drive share: I/Os, and the transfer of their data to and from the image. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "delay.h"
#include "image.h"
#include "issue_times.h"

#define TRANSFER_THREADS 16
/* Threads that read requests, so that a read does not wait behind the copy of a large write. */
#define SERVER_READERS 2

/* The data of writes of a calibration begins with these bytes, which are drawn at its start. */
#define CALIBRATION_MARK_BYTES 32

struct server {
	struct delay *delay;
	struct image *image;
	struct issue_times issue_times;
	char mark[CALIBRATION_MARK_BYTES];
	atomic_bool calibrating;
	char *buffers;      /* for the data of a request; aligned, one for each thread that reads requests */
	pthread_mutex_t image_lock; /* of an image in memory, for what changes it */
	char *file_buffers; /* one for each slot, with an image in a file */
	pthread_t workers[TRANSFER_THREADS];
	unsigned worker_count;

	/* I/Os whose data is to be transferred to or from the file. */
	pthread_mutex_t lock;
	pthread_cond_t queued;
	struct emulated_io *queue[DELAY_SLOTS];
	unsigned first, count;
	bool stopping;
};

/* Returns 0 or a negative errno. After a failure too, server_stop() ends it. */
int server_start(struct server *server, struct delay *delay, struct image *image);
void server_stop(struct server *server);

/* Where the data of the next write goes: to the slot's own buffer, or to that of the thread that reads requests. */
static inline char *server_buffer(const struct server *server, const struct emulated_io *io, unsigned reader)
{
	return io->buffer ? io->buffer : server->buffers + (size_t)reader * IMAGE_MAX_IO_BYTES;
}

/* Whether the I/O is within the drive, and has at most IMAGE_MAX_IO_BYTES if it has data. */
bool server_accepts(const struct server *server, const struct emulated_io *io);

/* Takes an accepted I/O with its fields and, of a write, its data. */
void server_take(struct server *server, struct emulated_io *io);
