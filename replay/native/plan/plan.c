/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "run/clock.h"
#include "run/confine.h"

/* The reader polls for free blocks, so that the issuing thread makes no system call to wake it. */
#define READER_NAP_NS (2 * NS_PER_MS)

#define COLUMN(type, name, field) { #name, sizeof(type) },
#define BASE PLAN_BASE_COLUMNS(COLUMN)
#define TARGET PLAN_TARGET_COLUMNS(COLUMN)
#define DEPENDENCIES PLAN_PARENT_COLUMNS(COLUMN) PLAN_DELAY_COLUMNS(COLUMN)
#define CAPTURED PLAN_CAPTURED_COLUMNS(COLUMN)
#define IN_FLIGHT PLAN_IN_FLIGHT_COLUMNS(COLUMN)
#define LAYOUT(columns_)                                                                          \
	{ .stream = "plan", .columns = (const struct block_column[]){ columns_ },                \
	  .column_count = sizeof((const struct block_column[]){ columns_ }) / sizeof(struct block_column) }

/* The optional groups of a plan, as the index of its layout. */
enum { HAS_TARGET = 1, HAS_DEPENDENCIES = 2, HAS_CAPTURED = 4, HAS_IN_FLIGHT = 8, LAYOUTS = 16 };

static const struct block_layout plan_layouts[LAYOUTS] = {
	LAYOUT(BASE),
	LAYOUT(BASE TARGET),
	LAYOUT(BASE DEPENDENCIES),
	LAYOUT(BASE TARGET DEPENDENCIES),
	LAYOUT(BASE CAPTURED),
	LAYOUT(BASE TARGET CAPTURED),
	LAYOUT(BASE DEPENDENCIES CAPTURED),
	LAYOUT(BASE TARGET DEPENDENCIES CAPTURED),
	/* Limits are of the order of the plan, which rows with dependencies do not have. */
	[HAS_CAPTURED | HAS_IN_FLIGHT] = LAYOUT(BASE CAPTURED IN_FLIGHT),
	[HAS_TARGET | HAS_CAPTURED | HAS_IN_FLIGHT] = LAYOUT(BASE TARGET CAPTURED IN_FLIGHT),
};

static int read_layout(struct plan *plan)
{
	const struct block_layout *layouts[LAYOUTS];
	size_t count = 0;
	int which;

	for (unsigned i = 0; i < LAYOUTS; i++)
		if (plan_layouts[i].columns)
			layouts[count++] = &plan_layouts[i];
	which = block_read_layout(plan->fd, layouts, count);
	if (which < 0)
		return which;
	plan->layout = layouts[which];
	which = (int)(plan->layout - plan_layouts);
	plan->dependent = which & HAS_DEPENDENCIES;
	plan->captured = which & HAS_CAPTURED;
	return 0;
}

static void point_columns(const struct plan *plan, struct plan_block *block, const void *const *columns)
{
	size_t groups = (size_t)(plan->layout - plan_layouts);

#define POINT(type, name, field) block->field = *columns++;
#define POINT_IF_DEPENDENT(type, name, field) block->field = plan->dependent ? *columns++ : NULL;
#define POINT_IF_CAPTURED(type, name, field) block->field = plan->captured ? *columns++ : NULL;
	PLAN_BASE_COLUMNS(POINT)
	block->target = groups & HAS_TARGET ? *columns++ : NULL;
	PLAN_PARENT_COLUMNS(POINT_IF_DEPENDENT)
	PLAN_DELAY_COLUMNS(POINT_IF_DEPENDENT)
	PLAN_CAPTURED_COLUMNS(POINT_IF_CAPTURED)
	block->in_flight = groups & HAS_IN_FLIGHT ? *columns++ : NULL;
}

static int refuse(struct plan *plan, int err)
{
	stop_request(plan->stop, STOP_PLAN_REFUSED);
	return err;
}

static int read_rows(struct plan *plan, struct plan_block *block, const struct block_header *header)
{
	const void *columns[BLOCK_MAX_COLUMNS];
	int err;

	if (header->rows > PLAN_MAX_ROWS || header->payload_bytes != block_rows_bytes(plan->layout, header->rows)) {
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
	err = block_split_rows(plan->layout, header->rows, block->payload, header->payload_bytes, columns);
	if (err)
		return err;
	block->rows = header->rows;
	point_columns(plan, block, columns);
	err = plan_check(plan, block);
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

/* Reads a block. Returns 1 after the end block, 0 or a negative errno. */
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
	int err;

	confine_thread(OTHER_THREAD);
	err = read_layout(plan);
	if (err == -EPROTO) {
		snprintf(plan->refusal, sizeof(plan->refusal),
			 "the plan has another layout than this helper; install helper and command from one build");
		refuse(plan, err);
	}
	while (!err)
		err = read_block(plan);
	/* Without an end block the planning process has died. */
	if (err < 0)
		stop_request(plan->stop, STOP_PLAN_CUT_OFF);
	atomic_store_explicit(&plan->complete, true, memory_order_release);
	return NULL;
}

int plan_init(struct plan *plan, int fd, const struct target *targets, unsigned target_count, struct stop *stop)
{
	int err;

	memset(plan, 0, sizeof(*plan));
	plan->fd = fd;
	plan->targets = targets;
	plan->target_count = target_count;
	plan->stop = stop;
	for (unsigned i = 0; i < PLAN_AHEAD_BLOCKS; i++)
		spsc_put(&plan->free, &plan->blocks[i]);
	err = pthread_create(&plan->thread, NULL, read_plan, plan);
	plan->started = !err;
	return -err;
}

void plan_deinit(struct plan *plan)
{
	if (!plan->started)
		return;
	/* It may wait for the pipe or for a free block. */
	pthread_cancel(plan->thread);
	pthread_join(plan->thread, NULL);
	for (unsigned i = 0; i < PLAN_AHEAD_BLOCKS; i++)
		free(plan->blocks[i].payload);
}

void plan_wait_loaded(struct plan *plan)
{
	while (!atomic_load_explicit(&plan->complete, memory_order_acquire) &&
	       spsc_count(&plan->ready) < PLAN_AHEAD_BLOCKS && !stop_requested(plan->stop))
		sleep_ns(NS_PER_MS);
}

bool plan_is_timed(struct plan *plan)
{
	return plan_has_row(plan) && plan->current->due_ns[plan->next] >= 0;
}

bool plan_advance(struct plan *plan)
{
	struct plan_block *next;

	/* A loop, because a stream may have any number of empty blocks. */
	while ((next = spsc_take(&plan->ready))) {
		if (plan->current)
			spsc_put(&plan->free, plan->current);
		plan->current = next;
		plan->next = 0;
		if (next->rows)
			return true;
	}
	return false;
}

bool plan_exhausted(struct plan *plan)
{
	/* Read first: the last block is put before `complete` is set. */
	bool complete = atomic_load_explicit(&plan->complete, memory_order_acquire);

	return complete && !plan_has_row(plan);
}
