/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The io_uring issuer: uring.c submits and reaps, uring_rows.c turns rows into submission entries. */
#pragma once

#include "issuer.h"
#include "offload.h"
#include "ring.h"

/* user_data: slot, kind of completion, bytes of the transfer, and the part of the row's buffer that holds them. */
#define UD_PREFLUSH (1ull << 32)
#define UD_OFFLOAD (1ull << 33)
#define UD_HOLE (1ull << 34)
#define BYTES_SHIFT 35
#define BYTES_MASK ((1u << 25) - 1)
#define PART_SHIFT 60

/* The most unreaped completions of one row: a piece is longer than half of PIECE_MAX_BYTES. */
#define ROW_COMPLETIONS (2 * ROW_WINDOW_BYTES / PIECE_MAX_BYTES)

enum { SINK_BUFFER, POOL_BUFFER };

/* The row in a slot. */
struct transfer {
	const struct ring *ring; /* that has its first entry; NULL: a discard in another thread */
	unsigned first_entry;
	int64_t submitted_bytes;
	char *data; /* of a write: claimed until the row completes */
};

/* Of a command that deallocates; the drive reads it. */
struct nvme_range {
	uint32_t attributes;
	uint32_t blocks;
	uint64_t first;
};

struct uring {
	struct issuer issuer;
	struct ring ring;
	struct ring polled; /* used if polls: for reads and writes that can be polled */
	bool polls;
	const struct target *targets;
	unsigned target_count;
	unsigned first_hint_file; /* of the registered files: HINT_COUNT for each target */
	struct payload *payload;
	struct offload *offload;
	uint64_t offload_events;
	struct transfer *transfers; /* of each slot */
	bool discard_command;
	bool commands; /* each target gets commands of NVMe instead of I/Os */
	uint16_t personality; /* with the privilege that commands take before Linux 6.2; 0: none */
	struct nvme_range *ranges; /* of each slot, with commands */
	char features[320];
};

/* Prepares a row. Later pieces of a long row follow by uring_queue_rest. */
void uring_queue_row(struct issuer *issuer, struct io *io, uint32_t slot);

/* Prepares the next pieces of a read or write, up to its window. `part` of its buffer is free. */
void uring_queue_rest(struct uring *uring, struct io *io, uint32_t slot, unsigned part);

/*
 * Repeats a read or write that the kernel refused with EAGAIN, in one of io_uring's threads. Returns false for one that
 * it cannot repeat.
 */
bool uring_repeat(struct uring *uring, const struct io *io, uint32_t slot, int32_t length_bytes);

/* Prepares the next command of a discard, write-zeroes or verify that is longer than one. */
void uring_queue_next_command(struct uring *uring, struct io *io, uint32_t slot);

/* Repeats a write-zeroes that failed as a hole because the drive lacks the command. */
void uring_zero_without_hole(struct uring *uring, struct io *io, uint32_t slot);

/* Tries a misaligned discard, which no drive executes: EINVAL means that the kernel has the discard command. */
bool uring_discard_command_works(struct uring *uring, int16_t target);
