/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counts for the live view: the rows since the last interval that was printed.
 * The thread that writes rows counts, never the one that empties the ring.
 */
#pragma once

#include "rows.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Buckets of a latency in ns, as in traces/live.py: exact below 16, then 16 per octave. */
#define LIVE_BUCKETS 1024
#define LIVE_THREADS 8192 /* a power of two; a quarter stays free */
#define LIVE_THREADS_LISTED 64

struct live_class {
	uint64_t ops; /* with a completion */
	uint64_t bytes; /* of these */
	uint64_t unseen; /* ended without a completion event */
	uint64_t errors;
	uint64_t latency_ns; /* sum */
	uint64_t longest_ns;
	uint32_t buckets[LIVE_BUCKETS];
};

struct live_thread {
	int32_t tid;
	uint64_t ops; /* 0: a free entry */
	uint64_t read_bytes;
	uint64_t write_bytes;
	uint64_t latency_ns;
};

struct live {
	pthread_mutex_t lock;
	uint64_t begin_ns; /* of the interval; relative to the start of the capture, as end_ns */
	uint64_t end_ns;
	struct live_class classes[MAX_DEVICES][OP_COUNT];
	struct live_thread threads[LIVE_THREADS];
	uint32_t used[LIVE_THREADS];
	uint32_t used_count;
	struct live_thread others; /* threads without an entry */
	char *names; /* notes of thread names, one per line */
	size_t names_bytes;
};

/* NULL without memory. */
struct live *live_create(void);
void live_destroy(struct live *live);

/* Bucket of a latency. */
uint32_t live_bucket(uint64_t latency_ns);

/* Counts a block. All I/Os that had completed by its posted_ns are then counted. */
void live_add(struct live *live, const struct row_block *block);

/* Adds a note of thread names to those to print; ignores other notes. */
void live_add_names(struct live *live, const char *json);

/* Prints and removes the notes of thread names. Returns false, and prints nothing, if the interval is empty. */
bool live_print_names(struct live *live, FILE *file);

/* Prints the members of the interval without its braces, and begins the next one. */
void live_print_interval(struct live *live, FILE *file, size_t device_count);

/* The most bytes that both print. */
size_t live_max_bytes(struct live *live);
