/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "payload.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "target.h"

/* Small reads go round in a part that still fits a cache; only a long one reaches beyond. */
#define SINK_ROUND_BYTES (1ull << 20)
#define SECTOR_BYTES 512u
#define COPY_KINDS 256u

static uint64_t mix64(uint64_t x)
{
	/* The finalizer of splitmix64 (Steele, Lea, Flood 2014): a bijection, so distinct stays distinct. */
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

size_t payload_share_bytes(unsigned threads)
{
	/* A long row, and others beside it. */
	const size_t least_bytes = 2 * ROW_WINDOW_BYTES;
	size_t share_bytes = PAYLOAD_POOL_BYTES / threads / STAMP_EVERY_BYTES * STAMP_EVERY_BYTES;

	return share_bytes > least_bytes ? share_bytes : least_bytes;
}

static void *map_buffer(size_t nbytes)
{
	void *buffer = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (buffer == MAP_FAILED)
		return NULL;
	madvise(buffer, nbytes, MADV_HUGEPAGE);
	return buffer;
}

static void fill_random(uint64_t *words, size_t count, uint64_t seed)
{
	for (size_t i = 0; i < count; i++)
		words[i] = mix64(seed += 0x9e3779b97f4a7c15ull);
}

/*
 * Zeros at the end of every sector, not of every piece: a compressor of
 * whatever unit finds the same share of them.
 */
static void make_compressible(char *pool, size_t pool_bytes, unsigned percent)
{
	size_t zeros = (SECTOR_BYTES * percent + 50) / 100;

	for (size_t end = SECTOR_BYTES; zeros && end <= pool_bytes; end += SECTOR_BYTES)
		memset(pool + end - zeros, 0, zeros);
}

/*
 * Chooses the pieces that are copies, in random order but the exact share of
 * every hundred, so that a regular trace does not write the same places with
 * copies each time. The first COPY_KINDS differ; the others are copies of them
 * in turn: two alike are so far apart that a compressor of streams with a
 * window of half a megabyte, as zstd -1, does not take one for the other.
 */
static void make_copies(struct payload *payload, unsigned percent)
{
	size_t pieces = payload->pool_bytes / STAMP_EVERY_BYTES, count = 0;
	uint64_t random = payload->seed;
	char *kinds[COPY_KINDS];
	unsigned wanted = 0;

	for (size_t i = 0; i < pieces; i++) {
		char *piece = payload->pool + i * STAMP_EVERY_BYTES;
		struct payload_stamp stamp = { mix64(~count ^ payload->seed), COPY_OFFSET };

		if (i % 100 == 0)
			wanted = percent;
		random = mix64(random + 0x9e3779b97f4a7c15ull);
		if (random % (100 - i % 100) >= wanted)
			continue;
		wanted--;
		payload->copies[i / 64] |= 1ull << i % 64;
		if (count < COPY_KINDS) {
			memcpy(piece, &stamp, sizeof(stamp));
			kinds[count] = piece;
		} else {
			memcpy(piece, kinds[count % COPY_KINDS], STAMP_EVERY_BYTES);
		}
		count++;
	}
}

static int make_pool(struct payload *payload, const struct payload_options *options)
{
	payload->pool_bytes = options->pool_bytes ? options->pool_bytes : PAYLOAD_POOL_BYTES;
	payload->pool = map_buffer(payload->pool_bytes);
	payload->copies = calloc(payload->pool_bytes / STAMP_EVERY_BYTES / 64 + 1, sizeof(*payload->copies));
	if (!payload->pool || !payload->copies)
		return -ENOMEM;
	fill_random((uint64_t *)payload->pool, payload->pool_bytes / sizeof(uint64_t), options->seed);
	make_compressible(payload->pool, payload->pool_bytes, options->compressible_percent);
	make_copies(payload, options->duplicates_percent);
	return 0;
}

int payload_init(struct payload *payload, const struct payload_options *options)
{
	int err = 0;

	*payload = (struct payload){ .seed = mix64(options->seed) };
	payload->sink_bytes = SINK_ROUND_BYTES + PIECE_MAX_BYTES;
	payload->sink = map_buffer(payload->sink_bytes);
	if (!payload->sink)
		return -ENOMEM;
	memset(payload->sink, 0, payload->sink_bytes);
	if (options->writes)
		err = make_pool(payload, options);
	if (err)
		payload_deinit(payload);
	return err;
}

void payload_deinit(struct payload *payload)
{
	if (payload->pool)
		munmap(payload->pool, payload->pool_bytes);
	if (payload->sink)
		munmap(payload->sink, payload->sink_bytes);
	free(payload->copies);
	*payload = (struct payload){ 0 };
}

static size_t whole_pieces(size_t nbytes)
{
	return (nbytes + STAMP_EVERY_BYTES - 1) / STAMP_EVERY_BYTES * STAMP_EVERY_BYTES;
}

static bool is_copy(const struct payload *payload, size_t at)
{
	size_t piece = at / STAMP_EVERY_BYTES;

	return payload->copies[piece / 64] >> piece % 64 & 1;
}

void *payload_take(struct payload *payload, int64_t offset_bytes, size_t length_bytes)
{
	size_t span = whole_pieces(length_bytes), from;

	assert(span <= payload->pool_bytes);
	if (payload->pool_at + span > payload->pool_bytes)
		payload->pool_at = 0;
	from = payload->pool_at;
	payload->pool_at += span;
	for (size_t at = 0; at < span; at += STAMP_EVERY_BYTES) {
		struct payload_stamp stamp;

		if (is_copy(payload, from + at))
			continue;
		stamp.counter = mix64(++payload->counter ^ payload->seed);
		stamp.offset_bytes = offset_bytes + at;
		memcpy(payload->pool + from + at, &stamp, sizeof(stamp));
	}
	return payload->pool + from;
}

void *payload_sink(struct payload *payload, size_t length_bytes)
{
	void *data;

	assert(length_bytes <= PIECE_MAX_BYTES);
	if (payload->sink_at >= SINK_ROUND_BYTES)
		payload->sink_at = 0;
	data = payload->sink + payload->sink_at;
	payload->sink_at += whole_pieces(length_bytes);
	return data;
}
