/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "block_set.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR_BITS 9
#define BLOCK_BITS 12
#define CHUNK_BITS 25
#define CHUNK_BYTES (1ll << CHUNK_BITS)
#define BLOCK_UNITS (1u << (CHUNK_BITS - BLOCK_BITS))
#define SECTOR_UNITS (1u << (CHUNK_BITS - SECTOR_BITS))
/* Words whose bits are counted together for ranks: at most so many are counted for one offset. */
#define GROUP_WORDS 8
#define GROUPS (BLOCK_UNITS / 64 / GROUP_WORDS)
#define LIMIT_BYTES (1ll << 62)
#define MOST_CHUNKS (1u << 22)
#define SAVED_MAGIC 0x31544553u

/* words: NULL where all units are in the set, or none (count tells). sectors: whether units are sectors, not blocks. */
struct chunk {
	int64_t number;
	int64_t blocks_before;
	uint64_t *words;
	uint32_t count;
	bool sectors;
	uint16_t before_group[GROUPS];
};

/* slots: open addressing, at most half full. sorted: the chunks in their order, NULL after one was added. */
struct block_set {
	struct chunk **slots;
	struct chunk **sorted;
	size_t slot_count;
	size_t chunks;
	int64_t bytes;
};

static unsigned unit_bits(const struct chunk *chunk)
{
	return chunk->sectors ? SECTOR_BITS : BLOCK_BITS;
}

static uint32_t units(const struct chunk *chunk)
{
	return chunk->sectors ? SECTOR_UNITS : BLOCK_UNITS;
}

static bool is_full(const struct chunk *chunk)
{
	return chunk->count == units(chunk);
}

/* Whether only the bitmap tells what is in the set. */
static bool is_mixed(const struct chunk *chunk)
{
	return chunk->count && !is_full(chunk);
}

static size_t slot_of(const struct block_set *set, int64_t number)
{
	size_t slot = ((uint64_t)number * 0x9E3779B97F4A7C15u >> 20) & (set->slot_count - 1);

	while (set->slots[slot] && set->slots[slot]->number != number)
		slot = (slot + 1) & (set->slot_count - 1);
	return slot;
}

static struct chunk *find(const struct block_set *set, int64_t number)
{
	return set->slots[slot_of(set, number)];
}

struct block_set *block_set_new(void)
{
	struct block_set *set = calloc(1, sizeof(*set));

	if (!set)
		return NULL;
	set->slot_count = 64;
	set->slots = calloc(set->slot_count, sizeof(*set->slots));
	if (set->slots)
		return set;
	free(set);
	return NULL;
}

void block_set_free(struct block_set *set)
{
	if (!set)
		return;
	for (size_t slot = 0; slot < set->slot_count; slot++) {
		if (!set->slots[slot])
			continue;
		free(set->slots[slot]->words);
		free(set->slots[slot]);
	}
	free(set->slots);
	free(set->sorted);
	free(set);
}

static int make_room(struct block_set *set)
{
	struct block_set larger = { .slot_count = set->slot_count * 2 };

	if (set->chunks * 2 < set->slot_count)
		return 0;
	if (set->chunks >= MOST_CHUNKS)
		return -EFBIG;
	larger.slots = calloc(larger.slot_count, sizeof(*larger.slots));
	if (!larger.slots)
		return -ENOMEM;
	for (size_t slot = 0; slot < set->slot_count; slot++) {
		if (set->slots[slot])
			larger.slots[slot_of(&larger, set->slots[slot]->number)] = set->slots[slot];
	}
	free(set->slots);
	set->slots = larger.slots;
	set->slot_count = larger.slot_count;
	return 0;
}

/* Spreads a bitmap of blocks over sectors: each bit becomes eight. */
static int make_sectors(struct chunk *chunk)
{
	uint64_t *words;

	if (chunk->words) {
		words = calloc(SECTOR_UNITS / 64, sizeof(*words));
		if (!words)
			return -ENOMEM;
		for (uint32_t block = 0; block < BLOCK_UNITS; block++) {
			if (chunk->words[block / 64] >> (block % 64) & 1)
				((uint8_t *)words)[block] = 0xFF;
		}
		free(chunk->words);
		chunk->words = words;
	}
	chunk->sectors = true;
	chunk->count *= SECTOR_UNITS / BLOCK_UNITS;
	return 0;
}

/* The chunk of that number, made where it does not exist, with units of sectors where they are wanted. */
static int get(struct block_set *set, int64_t number, bool sectors, struct chunk **found)
{
	struct chunk *chunk = find(set, number);
	int err;

	if (!chunk) {
		err = make_room(set);
		if (err)
			return err;
		chunk = calloc(1, sizeof(*chunk));
		if (!chunk)
			return -ENOMEM;
		chunk->number = number;
		chunk->sectors = sectors;
		set->slots[slot_of(set, number)] = chunk;
		set->chunks++;
		free(set->sorted);
		set->sorted = NULL;
	}
	*found = chunk;
	return sectors && !chunk->sectors ? make_sectors(chunk) : 0;
}

/* Room for bits; a chunk that is full or empty may have none. */
static int need_words(struct chunk *chunk)
{
	uint32_t words = units(chunk) / 64;

	if (chunk->words)
		return 0;
	chunk->words = calloc(words, sizeof(*chunk->words));
	if (!chunk->words)
		return -ENOMEM;
	if (chunk->count)
		memset(chunk->words, 0xFF, words * sizeof(*chunk->words));
	return 0;
}

static void drop_words_if_full(struct chunk *chunk)
{
	if (!is_full(chunk))
		return;
	free(chunk->words);
	chunk->words = NULL;
}

static void fill(struct block_set *set, struct chunk *chunk)
{
	set->bytes += CHUNK_BYTES - ((int64_t)chunk->count << unit_bits(chunk));
	chunk->count = units(chunk);
	drop_words_if_full(chunk);
}

/* The bits of one word that lie in the units [low, high). */
static uint64_t mask_of(uint32_t word, uint32_t low, uint32_t high)
{
	uint32_t first = word * 64;
	uint64_t mask = ~0ull;

	if (low > first)
		mask &= ~0ull << (low - first);
	if (high < first + 64)
		mask &= ~0ull >> (first + 64 - high);
	return mask;
}

static void put(struct block_set *set, struct chunk *chunk, uint32_t word, uint64_t bits)
{
	uint32_t fresh = __builtin_popcountll(bits & ~chunk->words[word]);

	chunk->words[word] |= bits;
	chunk->count += fresh;
	set->bytes += (int64_t)fresh << unit_bits(chunk);
}

/* A part of an I/O within one chunk that is not all of it. read_first: NULL for what is no read. */
static int touch_part(struct block_set *touched, struct block_set *read_first, int64_t number, int64_t start, int64_t end)
{
	struct chunk *chunk, *read = NULL;
	uint32_t low, high;
	int err;

	err = get(touched, number, ((start | end) & ((1 << BLOCK_BITS) - 1)) != 0, &chunk);
	if (err || is_full(chunk))
		return err;
	err = need_words(chunk);
	if (err)
		return err;
	low = start >> unit_bits(chunk);
	high = end >> unit_bits(chunk);
	for (uint32_t word = low / 64; word <= (high - 1) / 64; word++) {
		uint64_t fresh = mask_of(word, low, high) & ~chunk->words[word];

		if (!fresh)
			continue;
		if (read_first && !read) {
			err = get(read_first, number, chunk->sectors, &read);
			if (!err)
				err = need_words(read);
			if (err)
				return err;
		}
		put(touched, chunk, word, fresh);
		if (read)
			put(read_first, read, word, fresh);
	}
	drop_words_if_full(chunk);
	if (read)
		drop_words_if_full(read);
	return 0;
}

/* An I/O that covers a whole chunk. Where a part of it was touched before, a read is done bit by bit. */
static int touch_whole(struct block_set *touched, struct block_set *read_first, int64_t number)
{
	struct chunk *chunk, *read;
	int err = get(touched, number, false, &chunk);

	if (err || is_full(chunk))
		return err;
	if (read_first && chunk->count)
		return touch_part(touched, read_first, number, 0, CHUNK_BYTES);
	if (read_first) {
		err = get(read_first, number, chunk->sectors, &read);
		if (err)
			return err;
		fill(read_first, read);
	}
	fill(touched, chunk);
	return 0;
}

static int touch(struct block_set *touched, struct block_set *read_first, int64_t start, int64_t end)
{
	if (end <= start)
		return 0;
	if (start < 0 || end > LIMIT_BYTES)
		return -ERANGE;
	start = start >> SECTOR_BITS << SECTOR_BITS;
	end = (end + (1 << SECTOR_BITS) - 1) >> SECTOR_BITS << SECTOR_BITS;
	while (start < end) {
		int64_t number = start >> CHUNK_BITS, base = number << CHUNK_BITS;
		int64_t until = end < base + CHUNK_BYTES ? end : base + CHUNK_BYTES;
		int err;

		if (until - start == CHUNK_BYTES)
			err = touch_whole(touched, read_first, number);
		else
			err = touch_part(touched, read_first, number, start - base, until - base);
		if (err)
			return err;
		start = until;
	}
	return 0;
}

int block_set_add(struct block_set *set, const int64_t *start, const int64_t *end, size_t ranges)
{
	int err = 0;

	for (size_t i = 0; i < ranges && !err; i++)
		err = touch(set, NULL, start[i], end[i]);
	return err;
}

int block_set_first_touch(struct block_set *touched, struct block_set *read_first, const int64_t *start,
			  const int64_t *end, const uint8_t *is_read, size_t ios)
{
	int err = 0;

	for (size_t i = 0; i < ios && !err; i++)
		err = touch(touched, is_read[i] ? read_first : NULL, start[i], end[i]);
	return err;
}

int64_t block_set_bytes(const struct block_set *set)
{
	return set->bytes;
}

int64_t block_set_memory(const struct block_set *set)
{
	int64_t bytes = sizeof(*set) + set->slot_count * sizeof(*set->slots);

	for (size_t slot = 0; slot < set->slot_count; slot++) {
		const struct chunk *chunk = set->slots[slot];

		if (chunk)
			bytes += sizeof(*chunk) + (chunk->words ? units(chunk) / 8 : 0);
	}
	return bytes;
}

static int by_number(const void *one, const void *other)
{
	int64_t a = (*(struct chunk *const *)one)->number, b = (*(struct chunk *const *)other)->number;

	return (a > b) - (a < b);
}

static int sort(struct block_set *set)
{
	size_t count = 0;

	if (set->sorted)
		return 0;
	set->sorted = malloc((set->chunks + 1) * sizeof(*set->sorted));
	if (!set->sorted)
		return -ENOMEM;
	for (size_t slot = 0; slot < set->slot_count; slot++) {
		if (set->slots[slot])
			set->sorted[count++] = set->slots[slot];
	}
	qsort(set->sorted, count, sizeof(*set->sorted), by_number);
	return 0;
}

/* The first unit from `unit` on that is in the chunk, or is not; the number of units where there is none. */
static uint32_t next_unit(const struct chunk *chunk, uint32_t unit, bool inside)
{
	uint32_t all = units(chunk);

	if (!chunk->words)
		return (chunk->count != 0) == inside ? unit : all;
	while (unit < all) {
		uint64_t bits = inside ? chunk->words[unit / 64] : ~chunk->words[unit / 64];

		bits &= ~0ull << (unit % 64);
		if (bits)
			return (unit & ~63u) + __builtin_ctzll(bits);
		unit = (unit & ~63u) + 64;
	}
	return all;
}

/* The next range within a chunk from `at` on, in bytes of the drive. False where there is none. */
static bool next_in_chunk(const struct chunk *chunk, int64_t at, int64_t *start, int64_t *end)
{
	int64_t base = chunk->number << CHUNK_BITS;
	uint32_t from = at > base ? (at - base) >> unit_bits(chunk) : 0, low;

	low = next_unit(chunk, from, true);
	if (low == units(chunk))
		return false;
	*start = base + ((int64_t)low << unit_bits(chunk));
	*end = base + ((int64_t)next_unit(chunk, low, false) << unit_bits(chunk));
	return true;
}

/* Index of the first chunk that ends behind `at`. */
static size_t chunk_from(const struct block_set *set, int64_t at)
{
	size_t low = 0, high = set->chunks;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (set->sorted[middle]->number < at >> CHUNK_BITS)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int64_t block_set_next(struct block_set *set, int64_t *cursor_bytes, int64_t *start, int64_t *end, size_t capacity)
{
	size_t count = 0;
	int err = sort(set);

	if (err)
		return err;
	for (size_t i = chunk_from(set, *cursor_bytes); i < set->chunks; i++) {
		int64_t at = *cursor_bytes, from, until;

		while (next_in_chunk(set->sorted[i], at, &from, &until)) {
			if (count && end[count - 1] == from) {
				end[count - 1] = until;
			} else if (count == capacity) {
				*cursor_bytes = end[count - 1];
				return count;
			} else {
				start[count] = from;
				end[count++] = until;
			}
			at = until;
			if (at >> CHUNK_BITS != set->sorted[i]->number)
				break;
		}
	}
	if (count)
		*cursor_bytes = end[count - 1];
	return count;
}

int64_t block_set_limit(struct block_set *set)
{
	if (sort(set))
		return -ENOMEM;
	for (size_t i = set->chunks; i--;) {
		const struct chunk *chunk = set->sorted[i];
		int64_t base = chunk->number << CHUNK_BITS;

		if (is_full(chunk))
			return base + CHUNK_BYTES;
		for (uint32_t word = chunk->count ? units(chunk) / 64 : 0; word--;) {
			uint64_t bits = chunk->words[word];

			if (bits)
				return base + ((word * 64ll + 64 - __builtin_clzll(bits)) << unit_bits(chunk));
		}
	}
	return 0;
}

int64_t block_set_count(struct block_set *set)
{
	int64_t count = 0, last_end = -1;

	if (sort(set))
		return -ENOMEM;
	for (size_t i = 0; i < set->chunks; i++) {
		const struct chunk *chunk = set->sorted[i];
		int64_t base = chunk->number << CHUNK_BITS;
		/* Whether the unit before the word is in the set. */
		uint64_t carry = last_end == base;

		if (!chunk->count)
			continue;
		if (!chunk->words) {
			count += !carry;
			last_end = base + CHUNK_BYTES;
			continue;
		}
		for (uint32_t word = 0; word < units(chunk) / 64; word++) {
			uint64_t bits = chunk->words[word];

			count += __builtin_popcountll(bits & ~(bits << 1 | carry));
			carry = bits >> 63;
		}
		last_end = carry ? base + CHUNK_BYTES : -1;
	}
	return count;
}

static int copy_chunk(struct block_set *into, const struct chunk *chunk)
{
	struct chunk *copy;
	int err = get(into, chunk->number, chunk->sectors, &copy);

	if (err)
		return err;
	if (!chunk->words) {
		if (chunk->count)
			fill(into, copy);
		return 0;
	}
	err = need_words(copy);
	if (err)
		return err;
	for (uint32_t word = 0; word < units(chunk) / 64; word++)
		put(into, copy, word, chunk->words[word]);
	drop_words_if_full(copy);
	return 0;
}

static int grow_chunk(struct block_set *into, const struct chunk *chunk, int64_t block_bytes)
{
	int64_t at = chunk->number << CHUNK_BITS, start, end;
	int err = 0;

	while (!err && next_in_chunk(chunk, at, &start, &end)) {
		at = end;
		err = touch(into, NULL, start & -block_bytes, (end + block_bytes - 1) & -block_bytes);
		if (at >> CHUNK_BITS != chunk->number)
			break;
	}
	return err;
}

int block_set_is_grown(const struct block_set *set, int64_t block_bytes)
{
	for (size_t slot = 0; slot < set->slot_count; slot++) {
		const struct chunk *chunk = set->slots[slot];

		if (chunk && is_mixed(chunk) && block_bytes > 1 << unit_bits(chunk))
			return 0;
	}
	return 1;
}

struct block_set *block_set_grown(struct block_set *set, int64_t block_bytes)
{
	struct block_set *grown = block_set_new();
	int err = grown ? sort(set) : -ENOMEM;

	for (size_t i = 0; i < set->chunks && !err; i++) {
		const struct chunk *chunk = set->sorted[i];

		if (block_bytes <= 1 << unit_bits(chunk))
			err = copy_chunk(grown, chunk);
		else
			err = grow_chunk(grown, chunk, block_bytes);
	}
	if (!err)
		return grown;
	block_set_free(grown);
	return NULL;
}

int block_set_rank(struct block_set *set)
{
	int64_t before = 0;
	int err = sort(set);

	for (size_t i = 0; i < set->chunks && !err; i++) {
		struct chunk *chunk = set->sorted[i];
		uint32_t in_chunk = 0;

		if (chunk->sectors && chunk->words)
			return -EINVAL;
		chunk->blocks_before = before;
		for (uint32_t group = 0; chunk->words && group < GROUPS; group++) {
			chunk->before_group[group] = in_chunk;
			for (uint32_t word = group * GROUP_WORDS; word < (group + 1) * GROUP_WORDS; word++)
				in_chunk += __builtin_popcountll(chunk->words[word]);
		}
		before += is_full(chunk) ? BLOCK_UNITS : chunk->count;
	}
	return err;
}

static int64_t blocks_before(const struct block_set *set, int64_t offset)
{
	const struct chunk *chunk = find(set, offset >> CHUNK_BITS);
	uint32_t block = (offset & (CHUNK_BYTES - 1)) >> BLOCK_BITS;
	int64_t count;

	if (!chunk) {
		size_t next = chunk_from(set, offset);
		/* All of the set is before what lies behind its last chunk. */
		return next < set->chunks ? set->sorted[next]->blocks_before : set->bytes >> BLOCK_BITS;
	}
	if (!chunk->words)
		return chunk->blocks_before + (chunk->count ? block : 0);
	count = chunk->blocks_before + chunk->before_group[block / 64 / GROUP_WORDS];
	for (uint32_t word = block / 64 / GROUP_WORDS * GROUP_WORDS; word < block / 64; word++)
		count += __builtin_popcountll(chunk->words[word]);
	return count + __builtin_popcountll(chunk->words[block / 64] & ((1ull << (block % 64)) - 1));
}

void block_set_pack(const struct block_set *set, const int64_t *offset, int64_t *packed, size_t offsets)
{
	for (size_t i = 0; i < offsets; i++)
		packed[i] = (blocks_before(set, offset[i]) << BLOCK_BITS) + (offset[i] & ((1 << BLOCK_BITS) - 1));
}

/* Saved: magic, chunks; then of each chunk its number, its count with the kind of its units in the highest bit, and its
 * words where it is neither full nor empty.
 */
struct saved {
	uint32_t magic;
	uint32_t chunks;
};

struct saved_chunk {
	int64_t number;
	uint32_t count;
	uint32_t sectors;
};

int64_t block_set_save(struct block_set *set, uint8_t *bytes, size_t capacity)
{
	struct saved head = { .magic = SAVED_MAGIC, .chunks = set->chunks };
	size_t length = sizeof(head);

	if (sort(set))
		return -ENOMEM;
	for (size_t i = 0; i < set->chunks; i++)
		length += sizeof(struct saved_chunk) + (is_mixed(set->sorted[i]) ? units(set->sorted[i]) / 8 : 0);
	if (length > capacity)
		return length;
	memcpy(bytes, &head, sizeof(head));
	bytes += sizeof(head);
	for (size_t i = 0; i < set->chunks; i++) {
		const struct chunk *chunk = set->sorted[i];
		struct saved_chunk saved = { .number = chunk->number, .count = chunk->count, .sectors = chunk->sectors };

		memcpy(bytes, &saved, sizeof(saved));
		bytes += sizeof(saved);
		if (!is_mixed(chunk))
			continue;
		memcpy(bytes, chunk->words, units(chunk) / 8);
		bytes += units(chunk) / 8;
	}
	return length;
}

static int load_chunk(struct block_set *set, const uint8_t **bytes, size_t *length, int64_t *last_number)
{
	struct saved_chunk saved;
	struct chunk *chunk;
	uint32_t count = 0;
	int err;

	if (*length < sizeof(saved))
		return -EINVAL;
	memcpy(&saved, *bytes, sizeof(saved));
	*bytes += sizeof(saved);
	*length -= sizeof(saved);
	if (saved.number <= *last_number || saved.number >= LIMIT_BYTES >> CHUNK_BITS || saved.sectors > 1)
		return -EINVAL;
	*last_number = saved.number;
	err = get(set, saved.number, saved.sectors, &chunk);
	if (err)
		return err;
	if (saved.count == units(chunk)) {
		fill(set, chunk);
		return 0;
	}
	if (!saved.count)
		return 0;
	if (*length < units(chunk) / 8)
		return -EINVAL;
	err = need_words(chunk);
	if (err)
		return err;
	memcpy(chunk->words, *bytes, units(chunk) / 8);
	*bytes += units(chunk) / 8;
	*length -= units(chunk) / 8;
	for (uint32_t word = 0; word < units(chunk) / 64; word++)
		count += __builtin_popcountll(chunk->words[word]);
	if (count != saved.count)
		return -EINVAL;
	chunk->count = count;
	set->bytes += (int64_t)count << unit_bits(chunk);
	return 0;
}

struct block_set *block_set_load(const uint8_t *bytes, size_t length)
{
	struct block_set *set;
	struct saved head;
	int64_t last_number = -1;
	int err = 0;

	if (length < sizeof(head))
		return NULL;
	memcpy(&head, bytes, sizeof(head));
	bytes += sizeof(head);
	length -= sizeof(head);
	set = head.magic == SAVED_MAGIC ? block_set_new() : NULL;
	if (!set)
		return NULL;
	for (uint32_t i = 0; i < head.chunks && !err; i++)
		err = load_chunk(set, &bytes, &length, &last_number);
	if (!err && !length)
		return set;
	block_set_free(set);
	return NULL;
}
