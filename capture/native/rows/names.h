/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names of threads, cgroups and files beside the rows. The drain queues the
 * records; a thread of its own resolves cgroups and mounts, which walks
 * directories, and posts the notes. Memory is bounded: the drain waits while the queue is full.
 */
#pragma once

#include "mounts.h"
#include "outbox.h"
#include "records.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Numbers and their paths, in an open-addressing hash. */
struct path_map {
	struct path_entry *entries;
	size_t count;
	size_t bytes; /* of the paths */
};

struct names {
	struct outbox *outbox;
	struct name_queue *queued; /* by the drain, under the lock */
	struct name_queue *resolving; /* the thread's own */
	struct path_map cgroups;
	struct mounts mounts;
	FILE *mountinfo; /* NULL: it cannot be read */
	pthread_t thread;
	bool running;
	bool without_names; /* only the numbers of threads, processes and cgroups leave this process */
	pthread_mutex_t lock;
	pthread_cond_t wanted;
	pthread_cond_t taken;
	bool wake;
	bool closed;
	uint64_t queues_taken, queues_posted;
};

/* Starts the thread. Returns 0 or a negative errno. */
int names_init(struct names *names, struct outbox *outbox, bool without_names);
void names_deinit(struct names *names);

/* Queue a record. */
void names_add_thread(struct names *names, const struct thread_record *record);
void names_add_file(struct names *names, const struct file_record *record);

/* Starts work on the queue. Called a few times a second, so that one walk serves many records. */
void names_wake(struct names *names);

/* Posts the notes of the records that are queued now, and waits for that, at most timeout_ms. */
void names_settle(struct names *names, unsigned int timeout_ms);

/* Posts the notes of all queued records and ends the thread. */
void names_finish(struct names *names);

/* Adds below `root` all directories, by inode number: a cgroup's id. Paths begin after root. Returns 0 or -ENOMEM. */
int cgroups_read(struct path_map *cgroups, const char *root);

int path_map_init(struct path_map *map);
void path_map_deinit(struct path_map *map);

/* Adds a number without a path. Returns true if it was not there. */
bool path_map_want(struct path_map *map, uint64_t number);

/* NULL if the number has no path. */
const char *path_map_get(const struct path_map *map, uint64_t number);
