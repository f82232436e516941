/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sets of blocks. Input: a byte 0 and the bytes of a saved set; or ranges of 17 bytes, op, start and end, that change a
 * set. Every set must be saved and read back as the same.
 */
#include "fuzz.h"
#include "block_set.h"

#define MAX_RANGES 4096 /* that are read back */
#define MAX_RANGE_BYTES (512ll << 20) /* 16 chunks */

static void use(struct block_set *set)
{
	int64_t start[16], end[16], cursor = 0, last = -1, bytes = 0, count, ranges = 0, total = block_set_count(set);
	int64_t length = block_set_save(set, NULL, 0);
	struct block_set *again;
	uint8_t *saved;

	while ((count = block_set_next(set, &cursor, start, end, 16)) > 0 && ranges < MAX_RANGES) {
		for (int64_t i = 0; i < count; i++) {
			REQUIRE(start[i] > last && end[i] > start[i]);
			bytes += end[i] - start[i];
			last = end[i];
		}
		ranges += count;
	}
	if (ranges < MAX_RANGES)
		REQUIRE(ranges == total && bytes == block_set_bytes(set) && (!ranges || last == block_set_limit(set)));
	REQUIRE(length > 0);
	saved = malloc((size_t)length);
	REQUIRE(saved && block_set_save(set, saved, (size_t)length) == length);
	again = block_set_load(saved, (size_t)length, 0);
	free(saved);
	REQUIRE(again && block_set_count(again) == total && block_set_bytes(again) == block_set_bytes(set));
	block_set_free(again);
}

static void use_grown(struct block_set *set, int64_t block_bytes)
{
	struct block_set *grown = block_set_grown(set, block_bytes);
	int64_t offsets[] = { 0, 4096, 1 << 30, INT64_MAX }, packed[4];

	REQUIRE(grown && block_set_bytes(grown) >= block_set_bytes(set));
	use(grown);
	if (!block_set_rank(grown))
		block_set_pack(grown, offsets, packed, 4);
	block_set_free(grown);
}

static void change(struct input_bytes input)
{
	struct block_set *touched = block_set_new(), *read_first = block_set_new();

	REQUIRE(touched && read_first);
	for (int i = 0; input.size && i < 64; i++) {
		uint8_t op = take_byte(&input), is_read = op & 1;
		int64_t start = take_number(&input), end = take_number(&input);

		/* Half of the ranges are near each other. */
		if (op & 2) {
			start = (int64_t)((uint64_t)start % (64ull << 20));
			end = start + (int64_t)((uint64_t)end % (64ull << 20));
		}
		/* A longer range takes long with the sanitizers and reaches nothing new: a chunk for each 32 MiB. */
		if (start >= 0 && end > start && end - start > MAX_RANGE_BYTES)
			end = start + MAX_RANGE_BYTES;
		if (op & 4)
			block_set_add(touched, &start, &end, 1);
		else
			block_set_first_touch(touched, read_first, &start, &end, &is_read, 1);
	}
	REQUIRE(block_set_bytes(read_first) <= block_set_bytes(touched));
	if (block_set_memory(touched) < 64 << 20) {
		use(touched);
		use(read_first);
		use_grown(touched, 4096);
	}
	block_set_free(touched);
	block_set_free(read_first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct block_set *set;

	if (!size)
		return 0;
	if (*data) {
		change((struct input_bytes){ data, size });
		return 0;
	}
	set = block_set_load(data + 1, size - 1, 64 << 20);
	if (set)
		use(set);
	block_set_free(set);
	return 0;
}
