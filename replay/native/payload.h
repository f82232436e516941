/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is written, and where reads go. Written data is made before the first
 * deadline. By default it is random, and every 4 KiB of it gets a stamp that no
 * other 4 KiB of the run has, so a drive can neither compress nor deduplicate
 * it. A part of each sector may be zeros instead, which compress, and a part of
 * the 4 KiB pieces may be copies, which keep the contents they were made with.
 */
#ifndef BLKREEL_PAYLOAD_H
#define BLKREEL_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STAMP_EVERY_BYTES 4096u
#define PAYLOAD_POOL_BYTES (32ll << 20)

struct payload_stamp {
	uint64_t counter; /* of 4 KiB pieces in this run, from 1, mixed with the seed */
	uint64_t offset_bytes; /* where it was meant to go; COPY_OFFSET for a copy, which goes to many places */
};

#define COPY_OFFSET UINT64_MAX

struct payload_options {
	uint64_t seed;
	size_t pool_bytes;             /* of data kept ready; 0: PAYLOAD_POOL_BYTES */
	bool writes;                   /* whether anything is to be written at all */
	unsigned compressible_percent; /* so much of all data a compressor takes away */
	unsigned duplicates_percent;   /* so many of the 4 KiB pieces are copies of another one */
};

struct payload {
	char *pool; /* NULL where nothing is to be written */
	size_t pool_bytes;
	size_t pool_at;
	uint64_t *copies; /* a bit for each piece of the pool: it is one of several alike, and is never stamped */
	uint64_t counter;
	uint64_t seed;
	char *sink;
	size_t sink_bytes;
	size_t sink_at;
};

/* How much of the data each of several threads keeps ready: together the whole, but none less than it needs. */
size_t payload_share_bytes(unsigned threads);

/* Makes and touches the buffers: no page of them is first met during the run. Both percentages are 0 to 100. */
int payload_init(struct payload *payload, const struct payload_options *options);
void payload_deinit(struct payload *payload);

/* Stamped data for one write, 4 KiB aligned. It stays as it is until the pool's bytes were taken once more. */
void *payload_take(struct payload *payload, int64_t offset_bytes, size_t length_bytes);

/* Where one read may go. Reads share it: nobody looks at what was read. */
void *payload_sink(struct payload *payload, size_t length_bytes);

#endif
