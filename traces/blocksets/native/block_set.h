/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sets of the blocks of a drive: the blocks that a trace touches, and those that it reads before it writes them.
 *
 * A set is chunks of 32 MiB, found by their number in a hash table. A chunk is up to 64 ranges, then a bitmap, of 4 KiB blocks, or
 * of sectors of 512 bytes once a range that is not whole blocks was seen in it; a completely covered one has neither. So
 * a set takes at most 32 MiB of memory per TiB, about 100 bytes for an I/O far from all others, and almost none for a
 * discard of a whole drive.
 *
 * Ranges are in bytes, [start, end), and count in whole sectors: a part of a sector is extended to the whole one.
 * Functions that change a set return 0 or a negative errno: -ENOMEM; -ERANGE for a range before 0 or beyond 2^62;
 * -EFBIG if more than 128 TiB are touched; -E2BIG beyond the limit of memory. Ranges added before the failure stay.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct block_set;

/* NULL without memory. */
struct block_set *block_set_new(void);
void block_set_free(struct block_set *set);

/* Limits the memory of the set in bytes; 0 for no limit. */
void block_set_limit_memory(struct block_set *set, int64_t bytes);

int block_set_add(struct block_set *set, const int64_t *start, const int64_t *end, size_t ranges);

/* Adds I/Os in order: the parts that no earlier one touched to `touched`, those of reads also to `read_first`. */
int block_set_first_touch(struct block_set *touched, struct block_set *read_first, const int64_t *start,
			  const int64_t *end, const uint8_t *is_read, size_t ios);

int64_t block_set_bytes(const struct block_set *set);

/* The end of the last range, 0 for none. */
int64_t block_set_limit(struct block_set *set);

/* The number of ranges, with neighbors joined. */
int64_t block_set_count(struct block_set *set);

/* Memory that the set holds. */
int64_t block_set_memory(const struct block_set *set);

/* The next ranges in ascending order, neighbors joined: those that begin at *cursor_bytes or later, at most `capacity`.
 * Moves the cursor behind the last one. Returns how many; 0 at the end, negative errno.
 */
int64_t block_set_next(struct block_set *set, int64_t *cursor_bytes, int64_t *start, int64_t *end, size_t capacity);

/* Whether the bitmaps consist of whole blocks of that size, so that growing changes nothing. */
int block_set_is_grown(const struct block_set *set, int64_t block_bytes);

/* The same, grown outward to whole blocks of a power of two of bytes, 512 to 32 MiB. NULL without memory. */
struct block_set *block_set_grown(struct block_set *set, int64_t block_bytes);

/* Prepares block_set_pack(), until the set changes. Only for sets of whole 4 KiB blocks, else -EINVAL. */
int block_set_rank(struct block_set *set);

/* Offsets after the set is packed to its beginning: the bytes of the set before each. An offset outside the set gets that
 * of the next block inside, plus its own offset in its 4 KiB block.
 */
void block_set_pack(const struct block_set *set, const int64_t *offset, int64_t *packed, size_t offsets);

/* Serializes the set in this machine's byte order. Returns the length; writes nothing if `capacity` is less. */
int64_t block_set_save(struct block_set *set, uint8_t *bytes, size_t capacity);

/* NULL for bytes that block_set_save() cannot have written, without memory, and beyond the limit (0 for none). */
struct block_set *block_set_load(const uint8_t *bytes, size_t length, int64_t memory_limit);
