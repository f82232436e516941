/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "plan.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "clock.h"

/* The issuing thread makes no system call to wake the reader; with this many rows ahead a look now and then does. */
#define READER_NAP_NS (2 * NS_PER_MS)

static const struct block_column plan_columns[] = {
	{ "due_ns", 8 }, { "offset_bytes", 8 }, { "length_bytes", 8 }, { "op", 1 },
	{ "flags", 4 },  { "stream", 2 },       { "burst", 4 },        { "source_row", 8 },
};

static const struct block_layout plan_layout = {
	.stream = "plan",
	.columns = plan_columns,
	.column_count = sizeof(plan_columns) / sizeof(plan_columns[0]),
};

static int refuse(struct plan *plan, int err)
{
	stop_ask(plan->stop, STOP_PLAN_REFUSED);
	return err;
}

static int read_rows(struct plan *plan, struct plan_block *block, const struct block_header *header)
{
	const void *columns[BLOCK_MAX_COLUMNS];
	int err;

	if (header->rows > PLAN_MAX_ROWS || header->payload_bytes != block_rows_bytes(&plan_layout, header->rows)) {
		snprintf(plan->refusal, sizeof(plan->refusal), "a block of the plan has %u rows in %llu bytes",
			 header->rows, (unsigned long long)header->payload_bytes);
		return refuse(plan, -EPROTO);
	}
	if (header->payload_bytes > block->payload_size) {
		free(block->payload);
		block->payload = malloc(header->payload_bytes);
		block->payload_size = block->payload ? header->payload_bytes : 0;
		if (!block->payload) {
			snprintf(plan->refusal, sizeof(plan->refusal), "no memory for a block of the plan");
			return refuse(plan, -ENOMEM);
		}
	}
	err = block_read_exactly(plan->fd, block->payload, header->payload_bytes);
	if (err)
		return err;
	err = block_split_rows(&plan_layout, header->rows, block->payload, header->payload_bytes, columns);
	if (err)
		return err;
	block->rows = header->rows;
	block->due_ns = columns[0];
	block->offset_bytes = columns[1];
	block->length_bytes = columns[2];
	block->op = columns[3];
	block->flags = columns[4];
	block->stream = columns[5];
	block->burst = columns[6];
	block->source_row = columns[7];
	err = plan_check(block, plan->target, plan->rows_read, &plan->last_due_ns, plan->refusal,
			 sizeof(plan->refusal));
	if (err)
		return refuse(plan, err);
	plan->rows_read += block->rows;
	return 0;
}

static int skip_payload(struct plan *plan, uint64_t nbytes)
{
	char scrap[4096];

	while (nbytes > 0) {
		size_t part = nbytes < sizeof(scrap) ? nbytes : sizeof(scrap);
		int err = block_read_exactly(plan->fd, scrap, part);

		if (err)
			return err;
		nbytes -= part;
	}
	return 0;
}

/* Reads one block. 1: the plan is whole. */
static int read_block(struct plan *plan)
{
	struct block_header header;
	struct plan_block *block;
	int err = block_read_header(plan->fd, &header);

	if (err)
		return err;
	if (header.kind == BLOCK_END || header.kind == BLOCK_NOTE) {
		err = skip_payload(plan, header.payload_bytes);
		return err ? err : header.kind == BLOCK_END;
	}
	if (header.kind != BLOCK_ROWS)
		return -EPROTO;
	while (!(block = spsc_take(&plan->free)))
		sleep_ns(READER_NAP_NS);
	err = read_rows(plan, block, &header);
	if (!err)
		spsc_put(&plan->ready, block);
	return err;
}

static void *read_plan(void *argument)
{
	struct plan *plan = argument;
	int err = block_read_layout(plan->fd, &plan_layout);

	if (err == -EPROTO) {
		snprintf(plan->refusal, sizeof(plan->refusal),
			 "the plan has another layout than this helper; install helper and command from one build");
		refuse(plan, err);
	}
	while (!err)
		err = read_block(plan);
	/* The end of the pipe without an end block is the death of whoever planned. */
	if (err < 0)
		stop_ask(plan->stop, STOP_PLAN_CUT_OFF);
	atomic_store_explicit(&plan->whole, true, memory_order_release);
	return NULL;
}

int plan_start(struct plan *plan, int fd, const struct target *target, struct stop *stop)
{
	pthread_t thread;
	int err;

	memset(plan, 0, sizeof(*plan));
	plan->fd = fd;
	plan->target = target;
	plan->stop = stop;
	for (unsigned i = 0; i < PLAN_AHEAD_BLOCKS; i++)
		spsc_put(&plan->free, &plan->blocks[i]);
	err = pthread_create(&thread, NULL, read_plan, plan);
	if (!err)
		pthread_detach(thread);
	return -err;
}

void plan_wait_loaded(struct plan *plan)
{
	while (!atomic_load_explicit(&plan->whole, memory_order_acquire) &&
	       spsc_count(&plan->ready) < PLAN_AHEAD_BLOCKS && !stop_asked(plan->stop))
		sleep_ns(NS_PER_MS);
}

bool plan_is_timed(struct plan *plan)
{
	return plan_has_row(plan) && plan->current->due_ns[plan->next] >= 0;
}

bool plan_advance(struct plan *plan)
{
	struct plan_block *next = spsc_take(&plan->ready);

	if (!next)
		return false;
	if (plan->current)
		spsc_put(&plan->free, plan->current);
	plan->current = next;
	plan->next = 0;
	return next->rows > 0 || plan_advance(plan);
}

bool plan_exhausted(struct plan *plan)
{
	/* In this order: `whole` is set after the last block was put. */
	bool whole = atomic_load_explicit(&plan->whole, memory_order_acquire);

	return whole && !plan_has_row(plan);
}
