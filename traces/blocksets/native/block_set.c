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
/* Words per rank counter: the bits of at most so many are counted for one offset. */
#define GROUP_WORDS 8
#define GROUPS (BLOCK_UNITS / 64 / GROUP_WORDS)
#define LIMIT_BYTES (1ll << 62)
#define MOST_CHUNKS (1u << 22)
#define FIRST_SLOTS 8
#define MOST_SPANS 64
/* A chunk, its place in `sorted`, and what malloc() adds to it and to its spans. */
#define CHUNK_MEMORY ((int64_t)(sizeof(struct chunk) + sizeof(struct chunk *) + 32))
#define SAVED_MAGIC 0x31544553u

/* Units in the set, first to last. */
struct span {
	uint16_t first;
	uint16_t last;
};

/* A chunk has spans, ascending and apart, until it needs more than MOST_SPANS, then words with a bit per unit. It has
 * neither if all units are in the set, or none (see count). sectors: whether units are sectors, not blocks. The counters
 * of block_set_rank() follow the words.
 */
struct chunk {
	int64_t number;
	int64_t blocks_before;
	union {
		struct span *spans;
		uint64_t *words;
	};
	uint32_t count;
	uint8_t span_count;
	uint8_t span_capacity;
	bool has_words;
	bool sectors;
};

/* slots: open addressing, at most half full. sorted: the chunks in their order, NULL after one was added. memory: what
 * the set holds; memory_limit: 0 for none.
 */
struct block_set {
	struct chunk **slots;
	struct chunk **sorted;
	size_t slot_count;
	size_t chunks;
	int64_t bytes;
	int64_t memory;
	int64_t memory_limit;
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

/* Whether some but not all units are in the set. */
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
	set->slot_count = FIRST_SLOTS;
	set->memory = sizeof(*set) + FIRST_SLOTS * sizeof(*set->slots);
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
		free(set->slots[slot]->words); /* or spans */
		free(set->slots[slot]);
	}
	free(set->slots);
	free(set->sorted);
	free(set);
}

void block_set_limit_memory(struct block_set *set, int64_t bytes)
{
	set->memory_limit = bytes;
}

/* Accounts for memory that is about to be allocated. */
static int take_memory(struct block_set *set, int64_t bytes)
{
	if (set->memory_limit && set->memory + bytes > set->memory_limit)
		return -E2BIG;
	set->memory += bytes;
	return 0;
}

static int64_t words_memory(const struct chunk *chunk)
{
	return units(chunk) / 8 + (chunk->sectors ? 0 : (int64_t)(GROUPS * sizeof(uint16_t)));
}

static void drop_storage(struct block_set *set, struct chunk *chunk)
{
	set->memory -= chunk->has_words ? words_memory(chunk) : chunk->span_capacity * (int64_t)sizeof(struct span);
	free(chunk->words); /* or spans */
	chunk->words = NULL;
	chunk->has_words = false;
	chunk->span_count = 0;
	chunk->span_capacity = 0;
}

static int make_room(struct block_set *set)
{
	struct block_set larger = { .slot_count = set->slot_count * 2 };

	if (set->chunks * 2 < set->slot_count)
		return 0;
	if (set->chunks >= MOST_CHUNKS)
		return -EFBIG;
	if (take_memory(set, (int64_t)(set->slot_count * sizeof(*set->slots))))
		return -E2BIG;
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

/* Bits for a chunk that has none. Its spans and its count are carried over. */
static int make_words(struct block_set *set, struct chunk *chunk)
{
	struct chunk bits = *chunk;
	int err = take_memory(set, words_memory(chunk));

	if (err)
		return err;
	bits.words = calloc(1, (size_t)words_memory(chunk));
	if (!bits.words)
		return -ENOMEM;
	for (uint32_t i = 0; i < chunk->span_count; i++) {
		for (uint32_t unit = chunk->spans[i].first; unit <= chunk->spans[i].last; unit++)
			bits.words[unit / 64] |= 1ull << (unit % 64);
	}
	drop_storage(set, chunk);
	chunk->words = bits.words;
	chunk->has_words = true;
	return 0;
}

/* Divides blocks into sectors: each unit becomes eight. */
static int make_sectors(struct block_set *set, struct chunk *chunk)
{
	const uint32_t sectors = SECTOR_UNITS / BLOCK_UNITS;
	struct chunk spread = { .sectors = true };

	if (chunk->has_words) {
		int err = take_memory(set, words_memory(&spread));

		if (err)
			return err;
		spread.words = calloc(SECTOR_UNITS / 64, sizeof(*spread.words));
		if (!spread.words)
			return -ENOMEM;
		for (uint32_t block = 0; block < BLOCK_UNITS; block++) {
			if (chunk->words[block / 64] >> (block % 64) & 1)
				((uint8_t *)spread.words)[block] = 0xFF;
		}
		drop_storage(set, chunk);
		chunk->words = spread.words;
		chunk->has_words = true;
	}
	for (uint32_t i = 0; i < chunk->span_count; i++) {
		chunk->spans[i].first = (uint16_t)(chunk->spans[i].first * sectors);
		chunk->spans[i].last = (uint16_t)(chunk->spans[i].last * sectors + sectors - 1);
	}
	chunk->sectors = true;
	chunk->count *= sectors;
	return 0;
}

/* The chunk of that number, created if it does not exist, with units of sectors if requested. */
static int get(struct block_set *set, int64_t number, bool sectors, struct chunk **found)
{
	struct chunk *chunk = find(set, number);
	int err;

	if (!chunk) {
		err = make_room(set);
		if (err)
			return err;
		err = take_memory(set, CHUNK_MEMORY);
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
	return sectors && !chunk->sectors ? make_sectors(set, chunk) : 0;
}

static void drop_storage_if_full(struct block_set *set, struct chunk *chunk)
{
	if (is_full(chunk))
		drop_storage(set, chunk);
}

static void fill(struct block_set *set, struct chunk *chunk)
{
	set->bytes += CHUNK_BYTES - ((int64_t)chunk->count << unit_bits(chunk));
	chunk->count = units(chunk);
	drop_storage(set, chunk);
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

/* The first span that ends at `unit` or later. */
static uint32_t span_from(const struct chunk *chunk, uint32_t unit)
{
	uint32_t low = 0, high = chunk->span_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (chunk->spans[middle].last < unit)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static uint32_t next_unit_of_spans(const struct chunk *chunk, uint32_t unit, bool inside)
{
	uint32_t i = span_from(chunk, unit);

	if (i == chunk->span_count)
		return inside ? units(chunk) : unit;
	if (chunk->spans[i].first <= unit)
		return inside ? unit : chunk->spans[i].last + 1u;
	return inside ? chunk->spans[i].first : unit;
}

/* The first unit from `unit` on that is in the chunk (or not in it); the number of units if there is none. */
static uint32_t next_unit(const struct chunk *chunk, uint32_t unit, bool inside)
{
	uint32_t all = units(chunk);

	if (unit >= all || !is_mixed(chunk))
		return unit < all && (chunk->count != 0) == inside ? unit : all;
	if (!chunk->has_words)
		return next_unit_of_spans(chunk, unit, inside);
	while (unit < all) {
		uint64_t bits = inside ? chunk->words[unit / 64] : ~chunk->words[unit / 64];

		bits &= ~0ull << (unit % 64);
		if (bits)
			return (unit & ~63u) + (uint32_t)__builtin_ctzll(bits);
		unit = (unit & ~63u) + 64;
	}
	return all;
}

static int need_span(struct block_set *set, struct chunk *chunk)
{
	uint8_t capacity = chunk->span_capacity ? (uint8_t)(chunk->span_capacity * 2) : 1;
	struct span *spans;
	int err;

	if (chunk->span_count < chunk->span_capacity)
		return 0;
	err = take_memory(set, (capacity - chunk->span_capacity) * (int64_t)sizeof(*spans));
	if (err)
		return err;
	spans = realloc(chunk->spans, capacity * sizeof(*spans));
	if (!spans)
		return -ENOMEM;
	chunk->spans = spans;
	chunk->span_capacity = capacity;
	return 0;
}

/* Adds units to the spans of a chunk, joined with those that they touch. */
static int add_span(struct block_set *set, struct chunk *chunk, uint32_t low, uint32_t high)
{
	uint32_t begin = span_from(chunk, low ? low - 1 : 0), end = begin, before = 0;

	for (; end < chunk->span_count && chunk->spans[end].first <= high; end++)
		before += chunk->spans[end].last + 1u - chunk->spans[end].first;
	if (begin == end) {
		int err = need_span(set, chunk);

		if (err)
			return err;
	} else {
		low = low < chunk->spans[begin].first ? low : chunk->spans[begin].first;
		high = high > chunk->spans[end - 1].last + 1u ? high : chunk->spans[end - 1].last + 1u;
	}
	memmove(&chunk->spans[begin + 1], &chunk->spans[end], (chunk->span_count - end) * sizeof(*chunk->spans));
	chunk->span_count = (uint8_t)(chunk->span_count - (end - begin) + 1);
	chunk->spans[begin] = (struct span){ (uint16_t)low, (uint16_t)(high - 1) };
	chunk->count += high - low - before;
	set->bytes += (int64_t)(high - low - before) << unit_bits(chunk);
	return 0;
}

/* Adds units to a chunk that is not full. */
static int add_units(struct block_set *set, struct chunk *chunk, uint32_t low, uint32_t high)
{
	int err = 0;

	if (!chunk->has_words && chunk->span_count < MOST_SPANS)
		err = add_span(set, chunk, low, high);
	else if (!chunk->has_words)
		err = make_words(set, chunk);
	if (err)
		return err;
	if (chunk->has_words) {
		for (uint32_t word = low / 64; word <= (high - 1) / 64; word++)
			put(set, chunk, word, mask_of(word, low, high));
	}
	drop_storage_if_full(set, chunk);
	return 0;
}

/* The part of an I/O in one chunk, less than the whole chunk. read_first: NULL for other operations than reads. */
static int touch_part(struct block_set *touched, struct block_set *read_first, int64_t number, int64_t start, int64_t end)
{
	struct chunk *chunk, *read;
	uint32_t low, high, until;
	int err;

	err = get(touched, number, ((start | end) & ((1 << BLOCK_BITS) - 1)) != 0, &chunk);
	if (err || is_full(chunk))
		return err;
	low = (uint32_t)(start >> unit_bits(chunk));
	high = (uint32_t)(end >> unit_bits(chunk));
	for (uint32_t from = read_first ? next_unit(chunk, low, false) : high; from < high;
	     from = next_unit(chunk, until, false)) {
		until = next_unit(chunk, from, true);
		until = until < high ? until : high;
		err = get(read_first, number, chunk->sectors, &read);
		if (!err && !is_full(read))
			err = add_units(read_first, read, from, until);
		if (err)
			return err;
	}
	return add_units(touched, chunk, low, high);
}

/* An I/O that covers a whole chunk. If a part of it was touched before, a read is added bit by bit. */
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
	return set->memory;
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

/* The next range within a chunk from `at` on, in bytes of the drive. False if there is none. */
static bool next_in_chunk(const struct chunk *chunk, int64_t at, int64_t *start, int64_t *end)
{
	int64_t base = chunk->number << CHUNK_BITS;
	uint32_t from = at > base ? (uint32_t)((at - base) >> unit_bits(chunk)) : 0;
	uint32_t low = next_unit(chunk, from, true);

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
		}
	}
	if (count)
		*cursor_bytes = end[count - 1];
	return count;
}

int64_t block_set_limit(struct block_set *set)
{
	int64_t start, end = 0;

	if (sort(set))
		return -ENOMEM;
	for (size_t i = set->chunks; i-- && !end;) {
		while (next_in_chunk(set->sorted[i], end, &start, &end))
			;
	}
	return end;
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
		if (is_full(chunk)) {
			count += !carry;
			last_end = base + CHUNK_BYTES;
			continue;
		}
		if (!chunk->has_words) {
			count += chunk->span_count - (carry && !chunk->spans[0].first);
			last_end = chunk->spans[chunk->span_count - 1].last + 1u == units(chunk) ? base + CHUNK_BYTES : -1;
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

static int grow_chunk(struct block_set *into, const struct chunk *chunk, int64_t block_bytes)
{
	int64_t at = chunk->number << CHUNK_BITS, start, end;
	int err = 0;

	while (!err && next_in_chunk(chunk, at, &start, &end)) {
		at = end;
		err = touch(into, NULL, start & -block_bytes, (end + block_bytes - 1) & -block_bytes);
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

	for (size_t i = 0; i < set->chunks && !err; i++)
		err = grow_chunk(grown, set->sorted[i], block_bytes);
	if (!err)
		return grown;
	block_set_free(grown);
	return NULL;
}

/* The units before each group of words, behind the words of a chunk of blocks. */
static uint16_t *before_group(const struct chunk *chunk)
{
	return (uint16_t *)(chunk->words + BLOCK_UNITS / 64);
}

static int64_t blocks_before_in_spans(const struct chunk *chunk, uint32_t block)
{
	int64_t count = 0;

	for (uint32_t i = 0; i < chunk->span_count && chunk->spans[i].first < block; i++)
		count += (chunk->spans[i].last < block ? chunk->spans[i].last + 1u : block) - chunk->spans[i].first;
	return count;
}

int block_set_rank(struct block_set *set)
{
	int64_t before = 0;
	int err = sort(set);

	for (size_t i = 0; i < set->chunks && !err; i++) {
		struct chunk *chunk = set->sorted[i];
		uint32_t in_chunk = 0;

		if (chunk->sectors && is_mixed(chunk))
			return -EINVAL;
		chunk->blocks_before = before;
		for (uint32_t group = 0; chunk->has_words && group < GROUPS; group++) {
			before_group(chunk)[group] = (uint16_t)in_chunk;
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
		/* The whole set is before an offset behind its last chunk. */
		return next < set->chunks ? set->sorted[next]->blocks_before : set->bytes >> BLOCK_BITS;
	}
	if (is_full(chunk))
		return chunk->blocks_before + block;
	if (!chunk->has_words)
		return chunk->blocks_before + blocks_before_in_spans(chunk, block);
	count = chunk->blocks_before + before_group(chunk)[block / 64 / GROUP_WORDS];
	for (uint32_t word = block / 64 / GROUP_WORDS * GROUP_WORDS; word < block / 64; word++)
		count += __builtin_popcountll(chunk->words[word]);
	return count + __builtin_popcountll(chunk->words[block / 64] & ((1ull << (block % 64)) - 1));
}

void block_set_pack(const struct block_set *set, const int64_t *offset, int64_t *packed, size_t offsets)
{
	for (size_t i = 0; i < offsets; i++)
		packed[i] = (blocks_before(set, offset[i]) << BLOCK_BITS) + (offset[i] & ((1 << BLOCK_BITS) - 1));
}

/* Saved: magic, chunks; then of each chunk its number, its count, the kind of its units, and its words or spans if it is
 * neither full nor empty.
 */
struct saved {
	uint32_t magic;
	uint32_t chunks;
};

struct saved_chunk {
	int64_t number;
	uint32_t count;
	uint16_t sectors;
	uint16_t span_count;
};

static size_t saved_units_bytes(const struct chunk *chunk)
{
	if (!is_mixed(chunk))
		return 0;
	return chunk->has_words ? units(chunk) / 8 : chunk->span_count * sizeof(struct span);
}

int64_t block_set_save(struct block_set *set, uint8_t *bytes, size_t capacity)
{
	struct saved head = { .magic = SAVED_MAGIC, .chunks = (uint32_t)set->chunks };
	size_t length = sizeof(head);

	if (sort(set))
		return -ENOMEM;
	for (size_t i = 0; i < set->chunks; i++)
		length += sizeof(struct saved_chunk) + saved_units_bytes(set->sorted[i]);
	if (length > capacity)
		return length;
	memcpy(bytes, &head, sizeof(head));
	bytes += sizeof(head);
	for (size_t i = 0; i < set->chunks; i++) {
		const struct chunk *chunk = set->sorted[i];
		struct saved_chunk saved = { .number = chunk->number, .count = chunk->count, .sectors = chunk->sectors,
					     .span_count = chunk->span_count };
		size_t units_bytes = saved_units_bytes(chunk);

		memcpy(bytes, &saved, sizeof(saved));
		bytes += sizeof(saved);
		if (!units_bytes)
			continue;
		memcpy(bytes, chunk->words, units_bytes); /* or spans */
		bytes += units_bytes;
	}
	return length;
}

static int load_spans(struct block_set *set, struct chunk *chunk, const struct saved_chunk *saved, const uint8_t *bytes)
{
	uint32_t next = 0;
	int err = 0;

	for (uint32_t i = 0; i < saved->span_count && !err; i++) {
		struct span span;

		memcpy(&span, bytes + i * sizeof(span), sizeof(span));
		if (span.first < next || span.last < span.first || span.last >= units(chunk))
			return -EINVAL;
		err = add_span(set, chunk, span.first, span.last + 1u);
		next = span.last + 2u;
	}
	return err ? err : chunk->count == saved->count ? 0 : -EINVAL;
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
	if (saved.span_count) {
		size_t spans_bytes = saved.span_count * sizeof(struct span);

		if (saved.span_count > MOST_SPANS || *length < spans_bytes)
			return -EINVAL;
		err = load_spans(set, chunk, &saved, *bytes);
		*bytes += spans_bytes;
		*length -= spans_bytes;
		return err;
	}
	if (*length < units(chunk) / 8)
		return -EINVAL;
	err = make_words(set, chunk);
	if (err)
		return err;
	memcpy(chunk->words, *bytes, units(chunk) / 8);
	*bytes += units(chunk) / 8;
	*length -= units(chunk) / 8;
	for (uint32_t word = 0; word < units(chunk) / 64; word++)
		count += __builtin_popcountll(chunk->words[word]);
	if (count != saved.count || count == units(chunk))
		return -EINVAL;
	chunk->count = count;
	set->bytes += (int64_t)count << unit_bits(chunk);
	return 0;
}

struct block_set *block_set_load(const uint8_t *bytes, size_t length, int64_t memory_limit)
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
	set->memory_limit = memory_limit;
	for (uint32_t i = 0; i < head.chunks && !err; i++)
		err = load_chunk(set, &bytes, &length, &last_number);
	if (!err && !length)
		return set;
	block_set_free(set);
	return NULL;
}
