/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sets of blocks, held against an array of one byte a sector. Built with the sanitizers where the compiler has them. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "block_set.h"
#include "check.h"

#define CHUNK (32ll << 20)
/* Three chunks and a bit, so that ranges cross their borders. */
#define SECTORS (3 * (CHUNK / 512) + 100)

enum { NOBODY, WRITTEN, READ };

static uint8_t *model;
static uint32_t state = 1;

static uint32_t any(uint32_t below)
{
	state = state * 1664525 + 1013904223;
	return (uint32_t)((uint64_t)(state >> 4) * below >> 28);
}

static void check_same(struct block_set *set, bool reads_only)
{
	int64_t start[7], end[7], cursor = 0, got, at = 0, ranges = 0, bytes = 0, limit = 0;

	while ((got = block_set_next(set, &cursor, start, end, 7)) > 0) {
		for (int64_t i = 0; i < got; i++) {
			CHECK(start[i] >= at && end[i] > start[i] && (!ranges || start[i] > at));
			for (; at < start[i]; at += 512)
				CHECK(reads_only ? model[at / 512] != READ : !model[at / 512]);
			for (; at < end[i]; at += 512)
				CHECK(reads_only ? model[at / 512] == READ : model[at / 512]);
			bytes += end[i] - start[i];
			limit = end[i];
			ranges++;
		}
	}
	CHECK_EQUAL(got, 0);
	for (; at < SECTORS * 512; at += 512)
		CHECK(reads_only ? model[at / 512] != READ : !model[at / 512]);
	CHECK_EQUAL(block_set_bytes(set), bytes);
	CHECK_EQUAL(block_set_limit(set), limit);
	CHECK_EQUAL(block_set_count(set), ranges);
}

static void check_kept(struct block_set *set, bool reads_only)
{
	size_t length = block_set_save(set, NULL, 0);
	uint8_t *bytes = malloc(length + 1);
	struct block_set *again;

	CHECK_EQUAL(block_set_save(set, bytes, length), length);
	again = block_set_load(bytes, length, 0);
	CHECK(again);
	check_same(again, reads_only);
	block_set_free(again);
	CHECK(!block_set_load(bytes, length - 1, 0));
	CHECK(!block_set_load(bytes, length + 1, 0));
	/* Whatever is wrong in it, it is refused or it is a set: nothing is read or written out of bounds. */
	for (int i = 0; i < 200; i++) {
		uint32_t place = any(length < 4096 ? (uint32_t)length : 4096);
		uint8_t was = bytes[place];

		bytes[place] ^= 1 << any(8);
		again = block_set_load(bytes, length, 0);
		if (again)
			block_set_count(again);
		block_set_free(again);
		bytes[place] = was;
	}
	free(bytes);
}

static void test_against_model(int seed, uint32_t grain_sectors, uint32_t longest)
{
	struct block_set *touched = block_set_new(), *read_first = block_set_new();

	state = seed;
	memset(model, NOBODY, SECTORS);
	for (int i = 0; i < 300; i++) {
		int64_t low = any(SECTORS / grain_sectors) * (int64_t)grain_sectors;
		int64_t length = (1 + any(longest)) * (int64_t)grain_sectors, start, end;
		uint8_t is_read = (uint8_t)any(2);

		/* Now and then all of a chunk, or of all of them. */
		if (!any(60)) {
			low = any(3) * (CHUNK / 512);
			length = any(2) ? CHUNK / 512 : SECTORS;
		}
		if (low + length > SECTORS)
			length = SECTORS - low;
		start = low * 512;
		end = start + length * 512;
		CHECK_EQUAL(block_set_first_touch(touched, read_first, &start, &end, &is_read, 1), 0);
		for (int64_t sector = low; sector < low + length; sector++) {
			if (!model[sector])
				model[sector] = is_read ? READ : WRITTEN;
		}
		if (i % 50 == 49) {
			check_same(touched, false);
			check_same(read_first, true);
		}
	}
	check_kept(touched, false);
	check_kept(read_first, true);
	block_set_free(touched);
	block_set_free(read_first);
}

static void test_grown_and_packed(int seed, int64_t block_bytes)
{
	struct block_set *set = block_set_new(), *grown;
	int64_t before = 0, offset, place;

	state = seed;
	memset(model, NOBODY, SECTORS);
	for (int i = 0; i < 200; i++) {
		int64_t low = any(SECTORS - 64), start = low * 512, end = start + (1 + any(60)) * 512;
		int64_t from = start & -block_bytes, until = (end + block_bytes - 1) & -block_bytes;

		CHECK_EQUAL(block_set_add(set, &start, &end, 1), 0);
		for (int64_t sector = from / 512; sector < until / 512 && sector < SECTORS; sector++)
			model[sector] = WRITTEN;
	}
	grown = block_set_grown(set, block_bytes);
	CHECK(grown);
	if (block_bytes <= 4096)
		check_same(grown, false);
	if (block_bytes < 4096) {
		CHECK_EQUAL(block_set_rank(grown), -EINVAL);
	} else {
		CHECK_EQUAL(block_set_rank(grown), 0);
		for (int64_t sector = 0; sector < SECTORS; sector++) {
			offset = sector * 512;
			block_set_pack(grown, &offset, &place, 1);
			if (model[sector])
				CHECK_EQUAL(place, before * 512);
			before += model[sector] != NOBODY;
		}
	}
	block_set_free(set);
	block_set_free(grown);
}

static void test_refusals(void)
{
	struct block_set *set = block_set_new();
	int64_t start = -512, end = 512, cursor = 0;

	CHECK_EQUAL(block_set_add(set, &start, &end, 1), -ERANGE);
	start = 0;
	end = (1ll << 62) + 1;
	CHECK_EQUAL(block_set_add(set, &start, &end, 1), -ERANGE);
	end = 0;
	CHECK_EQUAL(block_set_add(set, &start, &end, 1), 0);
	CHECK_EQUAL(block_set_bytes(set), 0);
	CHECK_EQUAL(block_set_limit(set), 0);
	CHECK_EQUAL(block_set_count(set), 0);
	CHECK_EQUAL(block_set_next(set, &cursor, &start, &end, 1), 0);
	CHECK(!block_set_load((const uint8_t *)"", 0, 0));
	/* A discard of a large drive takes next to nothing. */
	end = 16ll << 40;
	CHECK_EQUAL(block_set_add(set, &start, &end, 1), 0);
	CHECK_EQUAL(block_set_bytes(set), end);
	CHECK(block_set_memory(set) < 80 << 20);
	end = 200ll << 40;
	CHECK_EQUAL(block_set_add(set, &start, &end, 1), -EFBIG);
	block_set_free(set);
	block_set_free(NULL);
}

int main(void)
{
	model = malloc(SECTORS);
	for (int seed = 1; seed <= 4; seed++) {
		test_against_model(seed, 8, 200);
		test_against_model(seed, 1, 200);
		test_against_model(seed, 1, 20000);
		test_against_model(seed, 8, 3);
	}
	for (int64_t block_bytes = 512; block_bytes <= 1 << 20; block_bytes *= 2)
		test_grown_and_packed(block_bytes, block_bytes);
	test_refusals();
	free(model);
	return 0;
}
