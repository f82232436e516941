/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "records.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "cleanup.h"
#include "run/clock.h"
#include "run/confine.h"
#include "run/memory.h"
#include "text.h"

#define HAND_OVER_NS (500 * NS_PER_MS)
#define NOTE_EVERY_NS (500 * NS_PER_MS)
/* The writer polls, so that the issuing thread makes no system call to wake it. */
#define WRITER_NAP_NS (5 * NS_PER_MS)

static const struct block_column record_columns[] = { RECORD_COLUMNS(BLOCK_COLUMN) };

static const struct block_layout record_layout = {
	.stream = "records",
	.columns = record_columns,
	.column_count = sizeof(record_columns) / sizeof(record_columns[0]),
};

static int write_block(struct record_writer *writer, const struct record_block *block)
{
	const void *columns[] = { RECORD_COLUMNS(BLOCK_POINTER) };

	return block_write_rows(writer->fd, &record_layout, block->rows, columns, false);
}

/* A JSON list: of each target, the outstanding rows that write or discard. */
static void write_changing(const struct record_writer *writer, FILE *out)
{
	for (unsigned i = 0; i < writer->of_threads[0].target_count; i++) {
		long long sum = 0;

		for (unsigned t = 0; t < writer->thread_count; t++)
			sum += atomic_load(&writer->of_threads[t].progress.changing[i]);
		fprintf(out, "%s%lld", i ? ", " : "", sum);
	}
}

static int write_note(struct record_writer *writer)
{
	long long start_ns = 0, elapsed_ns = 0, submitted = 0, completed = 0, errors = 0, outstanding = 0, late_ns = 0;
	bool draining = true;
	TEXT(json) = { 0 };
	char *text CLEANUP_FREE = NULL;

	for (unsigned i = 0; i < writer->thread_count; i++) {
		struct progress *p = &writer->of_threads[i].progress;

		start_ns = atomic_load(&p->start_monotonic_ns);
		if (atomic_load(&p->elapsed_ns) > elapsed_ns)
			elapsed_ns = atomic_load(&p->elapsed_ns);
		if (atomic_load(&p->max_lateness_ns) > late_ns)
			late_ns = atomic_load(&p->max_lateness_ns);
		submitted += atomic_load(&p->submitted);
		completed += atomic_load(&p->completed);
		errors += atomic_load(&p->errors);
		outstanding += atomic_load(&p->outstanding);
		draining &= atomic_load(&p->draining) != 0;
	}
	if (text_init(&json))
		return 0; /* the next note is newer */
	fprintf(json.file,
		"{\"note\": \"progress\", \"elapsed_ns\": %lld, \"submitted\": %lld, \"completed\": %lld, "
		"\"errors\": %lld, \"outstanding\": %lld, \"max_lateness_ns\": %lld, \"start_monotonic_ns\": %lld, "
		"\"draining\": %s, \"changing_ops\": [",
		elapsed_ns, submitted, completed, errors, outstanding, late_ns, start_ns, draining ? "true" : "false");
	write_changing(writer, json.file);
	fputs("]}", json.file);
	text = text_finish(&json);
	return text ? block_write_json(writer->fd, BLOCK_NOTE, text, false) : 0;
}

/* Writes the next block of one thread. Returns whether there was one. */
static bool write_records_of(struct record_writer *writer, struct records *records)
{
	struct record_block *block = spsc_take(&records->full);

	if (!block)
		return false;
	if (!writer->err)
		writer->err = write_block(writer, block);
	/* After a write error blocks still circulate, so that the issuing threads can end. */
	spsc_put(&records->free, block);
	return true;
}

static void *write_records(void *argument)
{
	struct record_writer *writer = argument;
	int64_t noted_ns = monotonic_ns();

	confine_thread(OTHER_THREAD);
	writer->err = block_write_layout(writer->fd, &record_layout, false);
	for (;;) {
		/* Read first: the last block is put before `finished` is set. */
		bool finished = atomic_load_explicit(&writer->finished, memory_order_acquire), any = false;

		for (unsigned i = 0; i < writer->thread_count; i++)
			any |= write_records_of(writer, &writer->of_threads[i]);
		if (!writer->err && monotonic_ns() - noted_ns >= NOTE_EVERY_NS) {
			writer->err = write_note(writer);
			noted_ns = monotonic_ns();
		}
		if (writer->err)
			stop_request(writer->stop, STOP_OUTPUT_CLOSED);
		if (any)
			continue;
		if (finished)
			return NULL;
		sleep_ns(WRITER_NAP_NS);
	}
}

int records_init(struct records *records, unsigned target_count)
{
	memset(records, 0, sizeof(*records));
	records->target_count = target_count;
	records->blocks = alloc_touched(RECORD_BLOCKS, sizeof(*records->blocks));
	if (!records->blocks)
		return -ENOMEM;
	for (unsigned i = 0; i < RECORD_BLOCKS; i++)
		spsc_put(&records->free, &records->blocks[i]);
	return 0;
}

void records_deinit(struct records *records)
{
	free(records->blocks);
}

int record_writer_start(struct record_writer *writer, struct records *of_threads, unsigned thread_count, int fd,
			struct stop *stop)
{
	*writer = (struct record_writer){
		.of_threads = of_threads, .thread_count = thread_count, .stop = stop, .fd = fd,
	};
	return -pthread_create(&writer->thread, NULL, write_records, writer);
}

void records_hand_over(struct records *records, int64_t now_ns, bool now)
{
	struct record_block *block = records->current;

	if (block && block->rows > 0 &&
	    (block->rows == RECORD_BLOCK_ROWS || now || now_ns - records->handed_over_ns >= HAND_OVER_NS)) {
		spsc_put(&records->full, block);
		records->current = NULL;
		records->handed_over_ns = now_ns;
	} else if (!block || block->rows == 0) {
		records->handed_over_ns = now_ns;
	}
}

int record_writer_finish(struct record_writer *writer)
{
	for (unsigned i = 0; i < writer->thread_count; i++)
		records_hand_over(&writer->of_threads[i], 0, true);
	atomic_store_explicit(&writer->finished, true, memory_order_release);
	pthread_join(writer->thread, NULL);
	return writer->err;
}
