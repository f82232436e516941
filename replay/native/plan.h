/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The plan as it comes from stdin: a thread reads and checks blocks of rows a
 * bounded number of blocks ahead of the issuing thread, so memory does not
 * grow with the trace and the issuing thread sees arrays only.
 */
#ifndef BLKREEL_PLAN_H
#define BLKREEL_PLAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spsc.h"
#include "stop.h"
#include "target.h"

#define PLAN_AHEAD_BLOCKS 8u
#define PLAN_MAX_ROWS (1u << 17) /* of one block; bounds what is read ahead */
#define PLAN_PARENTS 4u           /* completions that a row may wait for */
#define PLAN_REACH (1u << 18)     /* rows back that an anchor may lie */

struct plan_block {
	uint32_t rows;
	const int64_t *due_ns;
	const int64_t *offset_bytes;
	const int64_t *length_bytes;
	const int8_t *op;
	const int32_t *flags;
	const int16_t *stream;
	const int32_t *burst;
	const int64_t *source_row;
	/* Each group is there for the whole plan or NULL. */
	const int16_t *target;
	const int32_t *after[PLAN_PARENTS]; /* rows back: not before their completion; 0: none */
	const int32_t *behind;              /* rows back: not before its submission; 0: none */
	const int64_t *delay_ns;            /* after the last of these */
	const int64_t *captured_ns;         /* when it was submitted in the source, from any origin */
	const int64_t *captured_latency_ns; /* -1: unknown */
	void *payload;
	size_t payload_size;
};

struct plan {
	struct spsc ready; /* to the issuing thread */
	struct spsc free;  /* back to the reader */
	struct plan_block blocks[PLAN_AHEAD_BLOCKS];
	const struct target *targets;
	unsigned target_count;
	struct stop *stop;
	/* What the layout states; known once plan_wait_loaded has returned. */
	const struct block_layout *layout;
	bool anchored;
	bool captured;
	atomic_bool whole; /* the end block was read: what is ready is all there is */
	_Atomic int64_t rows_read; /* told in the totals while the reader may still be at it */
	int64_t last_due_ns; /* of a plan without anchors, whose rows come in order of their deadlines */
	char refusal[256]; /* why, once stop says STOP_PLAN_REFUSED */
	int fd;
	/* The issuing thread's place. */
	struct plan_block *current;
	uint32_t next;
};

/* Starts the reader. */
int plan_start(struct plan *plan, int fd, const struct target *targets, unsigned target_count, struct stop *stop);

/* Waits until the blocks ahead are full or the plan is whole. */
void plan_wait_loaded(struct plan *plan);

/* Its first row has a deadline. */
bool plan_is_timed(struct plan *plan);

/* Moves to the next block where the current one is used up. False: no row is there at the moment. */
bool plan_advance(struct plan *plan);

static inline bool plan_has_row(struct plan *plan)
{
	return (plan->current && plan->next < plan->current->rows) || plan_advance(plan);
}

/* No row is left and none will come. */
bool plan_exhausted(struct plan *plan);

/*
 * Whether the targets can carry out every row of the block, checked before any
 * of it is issued: 0, or a negative errno with the reason in plan->refusal.
 */
int plan_check(struct plan *plan, const struct plan_block *block);

#endif
