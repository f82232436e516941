/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "records.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "clock.h"

#define HAND_OVER_NS (500 * NS_PER_MS)
#define NOTE_EVERY_NS (500 * NS_PER_MS)
/* The issuing thread makes no system call to wake the writer; the blocks hold far more than comes in this time. */
#define WRITER_NAP_NS (5 * NS_PER_MS)

static const struct block_column record_columns[] = {
	{ "due_ns", 8 },       { "submit_ns", 8 },    { "complete_ns", 8 }, { "offset_bytes", 8 },
	{ "length_bytes", 8 }, { "op", 1 },           { "flags", 4 },       { "cpu", 2 },
	{ "status", 2 },       { "stream", 2 },       { "burst", 4 },       { "source_row", 8 },
};

static const struct block_layout record_layout = {
	.stream = "records",
	.columns = record_columns,
	.column_count = sizeof(record_columns) / sizeof(record_columns[0]),
};

static int write_block(struct records *records, const struct record_block *b)
{
	const void *columns[] = { b->due_ns, b->submit_ns, b->complete_ns, b->offset_bytes, b->length_bytes, b->op,
				  b->flags, b->cpu, b->status, b->stream, b->burst, b->source_row };

	return block_write_rows(records->fd, &record_layout, b->rows, columns);
}

static int write_note(struct records *records)
{
	struct progress *p = records->progress;
	char json[320];

	snprintf(json, sizeof(json),
		 "{\"note\": \"progress\", \"elapsed_ns\": %lld, \"submitted\": %lld, \"completed\": %lld, "
		 "\"errors\": %lld, \"outstanding\": %lld, \"max_lateness_ns\": %lld}",
		 progress_get(&p->elapsed_ns), progress_get(&p->submitted), progress_get(&p->completed),
		 progress_get(&p->errors), progress_get(&p->outstanding), progress_get(&p->max_lateness_ns));
	return block_write_json(records->fd, BLOCK_NOTE, json);
}

static void *write_records(void *argument)
{
	struct records *records = argument;
	int64_t noted_ns = monotonic_ns();
	bool failed = false;
	int err = block_write_layout(records->fd, &record_layout);

	for (;;) {
		/* In this order: the last block is put before `finished` is set. */
		bool finished = atomic_load_explicit(&records->finished, memory_order_acquire);
		struct record_block *block = spsc_take(&records->full);

		if (!err && block)
			err = write_block(records, block);
		if (!err && monotonic_ns() - noted_ns >= NOTE_EVERY_NS) {
			err = write_note(records);
			noted_ns = monotonic_ns();
		}
		/* Nobody reads any more. Blocks go round on, so that the issuing thread can end in order. */
		if (err && !failed) {
			failed = true;
			stop_ask(records->stop, STOP_OUTPUT_CLOSED);
		}
		if (block)
			spsc_put(&records->free, block);
		else if (finished)
			return failed ? records : NULL;
		else
			sleep_ns(WRITER_NAP_NS);
	}
}

int records_start(struct records *records, int fd, struct progress *progress, struct stop *stop)
{
	memset(records, 0, sizeof(*records));
	records->fd = fd;
	records->progress = progress;
	records->stop = stop;
	records->blocks = malloc(RECORD_BLOCKS * sizeof(*records->blocks));
	if (!records->blocks)
		return -ENOMEM;
	/* Touched now: a page fault during the run would be lateness. */
	memset(records->blocks, 0, RECORD_BLOCKS * sizeof(*records->blocks));
	for (unsigned i = 0; i < RECORD_BLOCKS; i++)
		spsc_put(&records->free, &records->blocks[i]);
	return -pthread_create(&records->writer, NULL, write_records, records);
}

void records_hand_over(struct records *records, int64_t now_ns, bool whatever_it_holds)
{
	struct record_block *block = records->current;

	if (block && block->rows > 0 &&
	    (block->rows == RECORD_BLOCK_ROWS || whatever_it_holds || now_ns - records->handed_over_ns >= HAND_OVER_NS)) {
		spsc_put(&records->full, block);
		records->current = NULL;
		records->handed_over_ns = now_ns;
	} else if (!block || block->rows == 0) {
		records->handed_over_ns = now_ns;
	}
}

bool records_finish(struct records *records)
{
	void *failed;

	records_hand_over(records, 0, true);
	atomic_store_explicit(&records->finished, true, memory_order_release);
	pthread_join(records->writer, &failed);
	return !failed;
}
