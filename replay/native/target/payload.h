/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Buffers for writes and reads, filled before the first deadline. Written data is random by default, and each 4 KiB of
 * it has a stamp that is unique in the run, so a drive can neither compress nor deduplicate it. On request a part of
 * each sector is zeros, which compress, and a part of the 4 KiB pieces are copies, which have no stamp.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STAMP_EVERY_BYTES 4096u
#define PAYLOAD_POOL_BYTES (32ll << 20)
#define PAYLOAD_MAX_BYTES (256ll << 20) /* for plans with that much outstanding */

struct payload_stamp {
	uint64_t counter; /* of 4 KiB pieces in this run, from 1, mixed with the seed */
	uint64_t offset_bytes; /* its offset on the target; COPY_OFFSET for a copy */
};

#define COPY_OFFSET UINT64_MAX

struct payload_options {
	uint64_t seed;
	size_t pool_bytes;             /* 0: PAYLOAD_POOL_BYTES */
	bool writes;                   /* without it there is no pool */
	unsigned compressible_percent; /* that a compressor removes */
	unsigned duplicates_percent;   /* of the 4 KiB pieces, that are copies */
};

struct payload {
	char *pool; /* NULL without writes */
	size_t pool_bytes;
	size_t pieces;      /* of the pool, of STAMP_EVERY_BYTES */
	size_t next_piece;  /* where the search for free pieces begins */
	size_t free_pieces;
	uint64_t *owned;    /* bitmap: the piece belongs to an outstanding write */
	uint64_t *copies;   /* bitmap: the piece is a copy, without stamp */
	uint64_t counter;
	uint64_t seed;
	char *sink;
	size_t sink_bytes;
	size_t sink_at;
};

/* Rounds up to entire pieces. */
static inline size_t payload_whole_bytes(size_t length_bytes)
{
	return (length_bytes + STAMP_EVERY_BYTES - 1) / STAMP_EVERY_BYTES * STAMP_EVERY_BYTES;
}

/* The pool of one of several threads: wanted_bytes, within its share of the smallest and of the largest pool. */
size_t payload_share_bytes(unsigned threads, size_t wanted_bytes);

/* Fills the buffers, so that no page fault occurs during the run. Returns 0 or -ENOMEM. */
int payload_init(struct payload *payload, const struct payload_options *options);
void payload_deinit(struct payload *payload);

/*
 * A write owns its data from the claim until its completion is reaped. Claims skip the data of slow writes, so those
 * do not delay others.
 */

/* Whether that much is free in one range. Without claims there is room for any row. */
bool payload_has_room(struct payload *payload, size_t length_bytes);

/* Returns data for a write, 4 KiB aligned. There must be room. */
void *payload_claim(struct payload *payload, size_t length_bytes);

/* length_bytes: as claimed. */
void payload_release(struct payload *payload, const void *data, size_t length_bytes);

/* Stamps claimed data, or a 4 KiB aligned part of it. */
void payload_put_stamps(struct payload *payload, void *data, int64_t offset_bytes, size_t length_bytes);

/* Returns a buffer for a read. Reads share it, because their data is discarded. */
void *payload_sink(struct payload *payload, size_t length_bytes);
