/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The records of issued rows: issuing threads fill blocks of columns, one writer thread sends them to stdout with
 * notes of the progress. The issuing threads never wait for the pipe.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "plan/spsc.h"
#include "run/stop.h"
#include "target/target.h"

#define RECORD_BLOCK_ROWS 32768u
#define RECORD_BLOCKS 16u
/* idle_removed_ns: see struct plan_row. host_delay_ns: see struct io. stall_ns: how much earlier the completion may have been, because of a stall. */
#define RECORD_COLUMNS(X)                                                                                     \
	X(int64_t, due_ns) X(int64_t, submit_ns) X(int64_t, complete_ns) X(int64_t, offset_bytes)             \
	X(int64_t, length_bytes) X(int8_t, op) X(int32_t, flags) X(int16_t, cpu) X(int16_t, status)           \
	X(int16_t, stream) X(int32_t, burst) X(int64_t, source_row) X(int16_t, target) X(int32_t, tid)       \
	X(int64_t, idle_removed_ns) X(int64_t, host_delay_ns) X(int64_t, stall_ns)

/* Written by the issuing thread, read by the writer. */
struct progress {
	atomic_llong start_monotonic_ns; /* 0: not set yet */
	atomic_llong elapsed_ns;
	atomic_llong submitted;
	atomic_llong completed;
	atomic_llong errors;
	atomic_llong outstanding;
	atomic_llong max_lateness_ns;
	atomic_llong draining; /* whether the thread issues nothing more */
	atomic_llong changing[MAX_TARGETS]; /* outstanding rows that write or discard */
};

static inline void progress_set(atomic_llong *value, int64_t to)
{
	atomic_store_explicit(value, to, memory_order_relaxed);
}

struct record_block {
	uint32_t rows;
#define ARRAY(type, name) type name[RECORD_BLOCK_ROWS];
	RECORD_COLUMNS(ARRAY)
#undef ARRAY
};

/* The records of one issuing thread. */
struct records {
	struct spsc full; /* to the writer */
	struct spsc free; /* back to the issuing thread */
	struct record_block *blocks;
	struct record_block *current; /* in use by the issuing thread; NULL: none was free */
	int64_t handed_over_ns;
	unsigned target_count;
	struct progress progress;
};

struct record_writer {
	struct records *of_threads;
	unsigned thread_count;
	atomic_bool finished;
	struct stop *stop;
	pthread_t thread;
	int fd;
	int err; /* of the first failed write */
};

int records_init(struct records *records, unsigned target_count);
void records_deinit(struct records *records);

int record_writer_start(struct record_writer *writer, struct records *of_threads, unsigned thread_count, int fd,
			struct stop *stop);

/* Returns a block with room for a row; NULL: all blocks wait for the writer. */
static inline struct record_block *records_room(struct records *records)
{
	if (!records->current) {
		records->current = spsc_take(&records->free);
		if (records->current)
			records->current->rows = 0;
	}
	return records->current;
}

/* Hands the current block to the writer if it is full, older than HAND_OVER_NS or `now`. */
void records_hand_over(struct records *records, int64_t now_ns, bool now);

/* After the last row of every thread: waits for the writer. Returns a negative errno unless it wrote all records. */
int record_writer_finish(struct record_writer *writer);
