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
	{ "target", 2 },
};

static const struct block_layout record_layout = {
	.stream = "records",
	.columns = record_columns,
	.column_count = sizeof(record_columns) / sizeof(record_columns[0]),
};

static int write_block(struct record_writer *writer, const struct record_block *b)
{
	const void *columns[] = { b->due_ns, b->submit_ns, b->complete_ns, b->offset_bytes, b->length_bytes, b->op,
				  b->flags, b->cpu, b->status, b->stream, b->burst, b->source_row, b->target };

	return block_write_rows(writer->fd, &record_layout, b->rows, columns);
}

static int write_note(struct record_writer *writer)
{
	long long start_ns = 0, elapsed_ns = 0, submitted = 0, completed = 0, errors = 0, outstanding = 0, late_ns = 0;
	char json[320];

	for (unsigned i = 0; i < writer->thread_count; i++) {
		struct progress *p = &writer->of_threads[i].progress;

		start_ns = progress_get(&p->start_monotonic_ns);
		if (progress_get(&p->elapsed_ns) > elapsed_ns)
			elapsed_ns = progress_get(&p->elapsed_ns);
		if (progress_get(&p->max_lateness_ns) > late_ns)
			late_ns = progress_get(&p->max_lateness_ns);
		submitted += progress_get(&p->submitted);
		completed += progress_get(&p->completed);
		errors += progress_get(&p->errors);
		outstanding += progress_get(&p->outstanding);
	}
	snprintf(json, sizeof(json),
		 "{\"note\": \"progress\", \"elapsed_ns\": %lld, \"submitted\": %lld, \"completed\": %lld, "
		 "\"errors\": %lld, \"outstanding\": %lld, \"max_lateness_ns\": %lld, \"start_monotonic_ns\": %lld}",
		 elapsed_ns, submitted, completed, errors, outstanding, late_ns, start_ns);
	return block_write_json(writer->fd, BLOCK_NOTE, json);
}

/* Writes what one thread has handed over; whether there was anything. */
static bool write_records_of(struct record_writer *writer, struct records *records, int *err)
{
	struct record_block *block = spsc_take(&records->full);

	if (!block)
		return false;
	if (!*err)
		*err = write_block(writer, block);
	/* Where nobody reads any more blocks go round on, so that the issuing threads can end in order. */
	spsc_put(&records->free, block);
	return true;
}

static void *write_records(void *argument)
{
	struct record_writer *writer = argument;
	int64_t noted_ns = monotonic_ns();
	int err = block_write_layout(writer->fd, &record_layout);

	for (;;) {
		/* In this order: the last block is put before `finished` is set. */
		bool finished = atomic_load_explicit(&writer->finished, memory_order_acquire), any = false;

		for (unsigned i = 0; i < writer->thread_count; i++)
			any |= write_records_of(writer, &writer->of_threads[i], &err);
		if (!err && monotonic_ns() - noted_ns >= NOTE_EVERY_NS) {
			err = write_note(writer);
			noted_ns = monotonic_ns();
		}
		if (err)
			stop_ask(writer->stop, STOP_OUTPUT_CLOSED);
		if (any)
			continue;
		if (finished)
			return err ? writer : NULL;
		sleep_ns(WRITER_NAP_NS);
	}
}

int records_init(struct records *records)
{
	memset(records, 0, sizeof(*records));
	records->blocks = malloc(RECORD_BLOCKS * sizeof(*records->blocks));
	if (!records->blocks)
		return -ENOMEM;
	/* Touched now: a page fault during the run would be lateness. */
	memset(records->blocks, 0, RECORD_BLOCKS * sizeof(*records->blocks));
	for (unsigned i = 0; i < RECORD_BLOCKS; i++)
		spsc_put(&records->free, &records->blocks[i]);
	return 0;
}

int record_writer_start(struct record_writer *writer, struct records *of_threads, unsigned thread_count, int fd,
			struct stop *stop)
{
	*writer = (struct record_writer){
		.of_threads = of_threads, .thread_count = thread_count, .stop = stop, .fd = fd,
	};
	return -pthread_create(&writer->thread, NULL, write_records, writer);
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

bool record_writer_finish(struct record_writer *writer)
{
	void *failed;

	for (unsigned i = 0; i < writer->thread_count; i++)
		records_hand_over(&writer->of_threads[i], 0, true);
	atomic_store_explicit(&writer->finished, true, memory_order_release);
	pthread_join(writer->thread, &failed);
	return !failed;
}
