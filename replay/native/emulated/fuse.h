/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A FUSE file system of one regular file, its root, that holds the image of an emulated drive. The protocol is spoken
 * directly, for control over the time of each reply; a loop device with direct I/O over the file is the drive.
 */
#ifndef BLKREEL_EMULATED_FUSE_H
#define BLKREEL_EMULATED_FUSE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "delay.h"
#include "image.h"

#define FUSE_FILE_THREADS 16

/* The data of writes of a calibration begins with these bytes, which are drawn at its start. */
#define CALIBRATION_MARK_BYTES 32

struct fuse_server {
	int fd;
	char path[256]; /* the mounted file */
	uint64_t inode_number;
	struct delay *delay;
	struct image *image;
	char *buffer;       /* for the data of a request; aligned */
	char *file_buffers; /* one for each slot, with an image in a file */
	char mark[CALIBRATION_MARK_BYTES];
	atomic_bool calibrating;
	atomic_int opens;
	atomic_bool ended; /* unmounted or aborted */
	pthread_t reader, workers[FUSE_FILE_THREADS];
	bool has_reader;
	unsigned worker_count;

	/* I/Os whose data is to be transferred to or from the file. */
	pthread_mutex_t lock;
	pthread_cond_t queued;
	struct emulated_io *queue[DELAY_SLOTS];
	unsigned first, count;
	bool stopping;
};

/* Mounts the file over the regular file `path`. inode_number: of the mounted file. Returns 0, or -1 after an error message. */
int fuse_mount(struct fuse_server *server, const char *path, uint64_t inode_number);

/* Serves the mounted file in threads of its own. Returns 0 or a negative errno. */
int fuse_start(struct fuse_server *server, struct delay *delay, struct image *image);

/* Unmounts the file and ends the threads. */
void fuse_stop(struct fuse_server *server);

#endif
