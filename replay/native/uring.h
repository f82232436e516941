/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between the two halves of the issuer by io_uring: uring.c talks to the kernel, uring_rows.c says what it is told. */
#ifndef BLKREEL_URING_H
#define BLKREEL_URING_H

#include "issuer.h"
#include "offload.h"
#include "ring.h"

/* user_data: the slot, what else the completion is of, and above that the bytes that a transfer is to carry. */
#define OF_PREFLUSH (1ull << 32)
#define OF_OFFLOAD (1ull << 33)
#define CARRIES_SHIFT 34

/* The most completions that one row may have waiting: a piece is more than half of PIECE_MAX_BYTES. */
#define ROW_COMPLETIONS (2 * ROW_WINDOW_BYTES / PIECE_MAX_BYTES)

enum { SINK_BUFFER, POOL_BUFFER };

struct uring {
	struct issuer issuer;
	struct ring ring;
	struct ring polled; /* where polls */
	bool polls;
	const struct target *targets;
	unsigned target_count;
	struct payload *payload;
	struct offload *offload;
	uint64_t offload_events;
	int64_t *handed_bytes; /* of the long row in each slot: what the kernel has got so far */
	bool discard_command;
	char features[256];
};

/* Prepares a row; what of it follows on completions comes with uring_queue_rest. */
void uring_queue_row(struct issuer *issuer, struct io *io, uint32_t slot);

/* What of a read or write is not with the kernel yet, as far as its window reaches. */
void uring_queue_rest(struct uring *uring, struct io *io, uint32_t slot);

/*
 * Whether the kernel knows the discard command: one that no drive can carry
 * out, misaligned as it is, is EINVAL where it does and EOPNOTSUPP where not.
 */
bool uring_discard_command_works(struct uring *uring, int16_t target);

#endif
