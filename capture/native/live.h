/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the drives do now, for who watches: counts of the rows since they were
 * told last. They are made by the thread that writes rows, never by the one
 * that empties the ring, and only where somebody watches.
 */
#ifndef BLKREEL_LIVE_H
#define BLKREEL_LIVE_H

#include "rows.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

/* Of a latency in ns: exact below 16, then 16 to an octave, which traces/live.py knows. */
#define LIVE_BUCKETS 1024
#define LIVE_THREADS 8192 /* a power of two; a quarter stays free */
#define LIVE_THREADS_TOLD 64

struct live_class {
	uint64_t ops; /* with a completion */
	uint64_t bytes; /* of these */
	uint64_t unseen; /* ended without one */
	uint64_t errors;
	uint64_t latency_ns; /* sum */
	uint64_t longest_ns;
	uint32_t buckets[LIVE_BUCKETS];
};

struct live_thread {
	int32_t tid;
	uint64_t ops; /* 0: the place is free */
	uint64_t read_bytes;
	uint64_t write_bytes;
	uint64_t latency_ns;
};

struct live {
	pthread_mutex_t lock;
	uint64_t begin_ns; /* of what is counted; relative to the start of the capture, as end_ns */
	uint64_t end_ns;
	struct live_class classes[MAX_DEVICES][OP_COUNT];
	struct live_thread threads[LIVE_THREADS];
	uint32_t used[LIVE_THREADS];
	uint32_t used_count;
	struct live_thread others; /* of those for which there was no place */
	char *names; /* lines that name threads, to be passed on */
	size_t names_bytes;
};

/* NULL without memory. */
struct live *live_open(void);
void live_close(struct live *live);

/* Bucket of a latency. */
uint32_t live_bucket(uint64_t latency_ns);

/* Counts a block; all that had completed by posted_ns has then been counted. */
void live_add(struct live *live, const struct row_block *block);

/* Keeps a note of threads to be passed on; others are none of its business. */
void live_keep_names(struct live *live, const char *json);

/*
 * Prints the lines that name threads, then the members of an interval without
 * its braces; and empties what was counted. Of an interval in which no time has
 * passed and no row has come nothing is printed: returns false.
 */
bool live_print(struct live *live, FILE *names, FILE *members, size_t device_count);

/* Whether there is something to print, and at most how many bytes that will be. */
size_t live_bytes(struct live *live);

#endif
