/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is written, and where reads go. Written data is random, and every 4 KiB
 * of it carries a stamp that no other 4 KiB of the run has, so a drive can
 * neither compress nor deduplicate it.
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
	uint64_t offset_bytes;
};

struct payload {
	char *pool; /* NULL where nothing is to be written */
	size_t pool_bytes;
	size_t pool_at;
	uint64_t counter;
	uint64_t seed;
	char *sink;
	size_t sink_bytes;
	size_t sink_at;
};

/* Makes and touches the buffers: no page of them is first met during the run. */
int payload_init(struct payload *payload, uint64_t seed, bool writes);
void payload_deinit(struct payload *payload);

/* Stamped data for one write, 4 KiB aligned. It stays as it is until PAYLOAD_POOL_BYTES more were taken. */
void *payload_take(struct payload *payload, int64_t offset_bytes, size_t length_bytes);

/* Where one read may go. Reads share it: nobody looks at what was read. */
void *payload_sink(struct payload *payload, size_t length_bytes);

#endif
