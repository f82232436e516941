/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What became of each row, on its way to stdout: each issuing thread fills
 * blocks of columns, one thread writes them all out and tells how far the run
 * is. The issuing threads never wait for the pipe.
 */
#ifndef BLKREEL_RECORDS_H
#define BLKREEL_RECORDS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "progress.h"
#include "spsc.h"
#include "stop.h"

#define RECORD_BLOCK_ROWS 32768u
#define RECORD_BLOCKS 16u

struct record_block {
	uint32_t rows;
	int64_t due_ns[RECORD_BLOCK_ROWS];
	int64_t submit_ns[RECORD_BLOCK_ROWS];
	int64_t complete_ns[RECORD_BLOCK_ROWS];
	int64_t offset_bytes[RECORD_BLOCK_ROWS];
	int64_t length_bytes[RECORD_BLOCK_ROWS];
	int8_t op[RECORD_BLOCK_ROWS];
	int32_t flags[RECORD_BLOCK_ROWS];
	int16_t cpu[RECORD_BLOCK_ROWS];
	int16_t status[RECORD_BLOCK_ROWS];
	int16_t stream[RECORD_BLOCK_ROWS];
	int32_t burst[RECORD_BLOCK_ROWS];
	int64_t source_row[RECORD_BLOCK_ROWS];
	int16_t target[RECORD_BLOCK_ROWS];
};

/* Of one issuing thread. */
struct records {
	struct spsc full; /* to the writer */
	struct spsc free; /* back to the issuing thread */
	struct record_block *blocks;
	struct record_block *current; /* the issuing thread's; NULL where none was free */
	int64_t handed_over_ns;
	struct progress progress; /* of its thread */
};

struct record_writer {
	struct records *of_threads;
	unsigned thread_count;
	atomic_bool finished;
	struct stop *stop;
	pthread_t thread;
	int fd;
};

int records_init(struct records *records);

/* Starts the writer of what these threads record. */
int record_writer_start(struct record_writer *writer, struct records *of_threads, unsigned thread_count, int fd,
			struct stop *stop);

/* Room for one more row, or NULL: the writer is behind by all blocks. */
static inline struct record_block *records_room(struct records *records)
{
	if (!records->current) {
		records->current = spsc_take(&records->free);
		if (records->current)
			records->current->rows = 0;
	}
	return records->current;
}

/* Hands the current block over if it is full, or holds rows for longer than half a second. */
void records_hand_over(struct records *records, int64_t now_ns, bool whatever_it_holds);

/* After the last row of every thread: waits until all is written. False: it could not be. */
bool record_writer_finish(struct record_writer *writer);

#endif
