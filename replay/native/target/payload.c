/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "payload.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "target.h"

/* Short reads use a part of the buffer that fits into a CPU cache. */
#define SINK_ROUND_BYTES (1ull << 20)
#define SECTOR_BYTES 512u
#define COPY_KINDS 256u

static uint64_t mix64(uint64_t x)
{
	/* The finalizer of splitmix64 (Steele, Lea, Flood 2014), a bijection. */
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

size_t payload_share_bytes(unsigned threads, size_t wanted_bytes)
{
	/* For a long row and others. */
	const size_t min_bytes = 2 * ROW_WINDOW_BYTES;
	size_t share_bytes = PAYLOAD_POOL_BYTES / threads, max_bytes = PAYLOAD_MAX_BYTES / threads;

	if (share_bytes < wanted_bytes)
		share_bytes = wanted_bytes < max_bytes ? wanted_bytes : max_bytes;
	if (share_bytes < min_bytes)
		share_bytes = min_bytes;
	return share_bytes / STAMP_EVERY_BYTES * STAMP_EVERY_BYTES;
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

/* Puts zeros at the end of every sector, so that a compressor finds the same share of them in any unit. */
static void make_compressible(char *pool, size_t pool_bytes, unsigned percent)
{
	size_t zeros = (SECTOR_BYTES * percent + 50) / 100;

	for (size_t end = SECTOR_BYTES; zeros && end <= pool_bytes; end += SECTOR_BYTES)
		memset(pool + end - zeros, 0, zeros);
}

/*
 * Selects the copies at random, but exactly `percent` of every hundred pieces. They repeat COPY_KINDS pieces in turn,
 * so equal pieces are farther apart than the window of a stream compressor (zstd -1: half a megabyte).
 */
static void make_copies(struct payload *payload, unsigned percent)
{
	size_t count = 0;
	uint64_t random = payload->seed;
	char *kinds[COPY_KINDS];
	unsigned wanted = 0;

	for (size_t i = 0; i < payload->pieces; i++) {
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
	payload->pieces = payload->free_pieces = payload->pool_bytes / STAMP_EVERY_BYTES;
	payload->copies = calloc(payload->pieces / 64 + 1, sizeof(*payload->copies));
	payload->owned = calloc(payload->pieces / 64 + 1, sizeof(*payload->owned));
	if (!payload->pool || !payload->copies || !payload->owned)
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
	free(payload->owned);
	*payload = (struct payload){ 0 };
}

static bool is_copy(const struct payload *payload, size_t at)
{
	size_t piece = at / STAMP_EVERY_BYTES;

	return payload->copies[piece / 64] >> piece % 64 & 1;
}

/* The first piece of [from, end) whose bit is `set`; `end`: none. */
static size_t find_piece(const uint64_t *bits, size_t from, size_t end, bool set)
{
	while (from < end) {
		uint64_t word = (set ? bits[from / 64] : ~bits[from / 64]) >> from % 64;

		if (word) {
			from += (size_t)__builtin_ctzll(word);
			return from < end ? from : end;
		}
		from += 64 - from % 64;
	}
	return end;
}

/* `count` bits of one word, 1 to 64. */
static inline uint64_t bits_from(size_t bit, size_t count)
{
	return ~0ull >> (64 - count) << bit;
}

/* Flips the bits of pieces that are either all owned or all free. */
static inline void flip_pieces(uint64_t *bits, size_t from, size_t count)
{
	while (count > 64 - from % 64) {
		size_t part = 64 - from % 64;

		bits[from / 64] ^= bits_from(from % 64, part);
		from += part;
		count -= part;
	}
	bits[from / 64] ^= bits_from(from % 64, count);
}

/* Searches the pool once, past owned pieces. */
static bool find_room(struct payload *payload, size_t count)
{
	size_t at = payload->next_piece;
	bool wrapped = false;

	if (count > payload->free_pieces)
		return false;
	for (;;) {
		size_t owned;

		if (at + count > payload->pieces) {
			if (wrapped)
				return false;
			wrapped = true;
			at = 0;
			continue;
		}
		owned = find_piece(payload->owned, at, at + count, true);
		if (owned == at + count)
			break;
		at = find_piece(payload->owned, owned, payload->pieces, false);
	}
	payload->next_piece = at;
	return true;
}

static inline bool has_room(struct payload *payload, size_t count)
{
	size_t at = payload->next_piece, bit = at % 64;

	/* The pieces of a short write are nearly always the next ones. */
	if (count <= 64 - bit && at + count <= payload->pieces &&
	    !(payload->owned[at / 64] & bits_from(bit, count)))
		return true;
	return find_room(payload, count);
}

bool payload_has_room(struct payload *payload, size_t length_bytes)
{
	return has_room(payload, payload_whole_bytes(length_bytes) / STAMP_EVERY_BYTES);
}

void *payload_claim(struct payload *payload, size_t length_bytes)
{
	size_t count = payload_whole_bytes(length_bytes) / STAMP_EVERY_BYTES, from;
	bool found = has_room(payload, count);

	assert(found);
	(void)found;
	from = payload->next_piece;
	flip_pieces(payload->owned, from, count);
	payload->free_pieces -= count;
	payload->next_piece += count;
	return payload->pool + from * STAMP_EVERY_BYTES;
}

void payload_release(struct payload *payload, const void *data, size_t length_bytes)
{
	size_t count = payload_whole_bytes(length_bytes) / STAMP_EVERY_BYTES;

	flip_pieces(payload->owned, ((const char *)data - payload->pool) / STAMP_EVERY_BYTES, count);
	payload->free_pieces += count;
}

void payload_put_stamps(struct payload *payload, void *data, int64_t offset_bytes, size_t length_bytes)
{
	size_t from = (char *)data - payload->pool;

	for (size_t at = 0; at < length_bytes; at += STAMP_EVERY_BYTES) {
		struct payload_stamp stamp;

		if (is_copy(payload, from + at))
			continue;
		stamp.counter = mix64(++payload->counter ^ payload->seed);
		stamp.offset_bytes = offset_bytes + at;
		memcpy(payload->pool + from + at, &stamp, sizeof(stamp));
	}
}

void *payload_sink(struct payload *payload, size_t length_bytes)
{
	void *data;

	assert(length_bytes <= PIECE_MAX_BYTES);
	if (payload->sink_at >= SINK_ROUND_BYTES)
		payload->sink_at = 0;
	data = payload->sink + payload->sink_at;
	payload->sink_at += payload_whole_bytes(length_bytes);
	return data;
}
