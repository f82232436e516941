/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "payload.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "target.h"

/* Small reads go round in a part that still fits a cache; only a long one reaches beyond. */
#define SINK_ROUND_BYTES (1ull << 20)

static uint64_t mix64(uint64_t x)
{
	/* The finalizer of splitmix64 (Steele, Lea, Flood 2014): a bijection, so distinct stays distinct. */
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
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

int payload_init(struct payload *payload, uint64_t seed, bool writes)
{
	*payload = (struct payload){ .seed = mix64(seed) };
	payload->sink_bytes = SINK_ROUND_BYTES + PIECE_MAX_BYTES;
	payload->sink = map_buffer(payload->sink_bytes);
	if (!payload->sink)
		return -ENOMEM;
	memset(payload->sink, 0, payload->sink_bytes);
	if (!writes)
		return 0;
	payload->pool_bytes = PAYLOAD_POOL_BYTES;
	payload->pool = map_buffer(payload->pool_bytes);
	if (!payload->pool) {
		payload_deinit(payload);
		return -ENOMEM;
	}
	fill_random((uint64_t *)payload->pool, payload->pool_bytes / sizeof(uint64_t), seed);
	return 0;
}

void payload_deinit(struct payload *payload)
{
	if (payload->pool)
		munmap(payload->pool, payload->pool_bytes);
	if (payload->sink)
		munmap(payload->sink, payload->sink_bytes);
	*payload = (struct payload){ 0 };
}

static size_t whole_pieces(size_t nbytes)
{
	return (nbytes + STAMP_EVERY_BYTES - 1) / STAMP_EVERY_BYTES * STAMP_EVERY_BYTES;
}

void *payload_take(struct payload *payload, int64_t offset_bytes, size_t length_bytes)
{
	size_t span = whole_pieces(length_bytes);
	char *data;

	assert(span <= payload->pool_bytes);
	if (payload->pool_at + span > payload->pool_bytes)
		payload->pool_at = 0;
	data = payload->pool + payload->pool_at;
	payload->pool_at += span;
	for (size_t at = 0; at < span; at += STAMP_EVERY_BYTES) {
		struct payload_stamp stamp = {
			.counter = mix64(++payload->counter ^ payload->seed),
			.offset_bytes = offset_bytes + at,
		};

		memcpy(data + at, &stamp, sizeof(stamp));
	}
	return data;
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
