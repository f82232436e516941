/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sets of the blocks of a drive: what a trace touches, and what it reads before it has written it.
 *
 * A set is chunks of 32 MiB, found by their number in a hash table. A chunk is a bitmap of 4 KiB blocks, or of sectors of
 * 512 bytes once a range that is not whole blocks was seen in it; one that is covered wholly has no bitmap. So a set takes
 * 32 MiB of memory for each TiB that is touched all over, and a discard of a whole drive next to nothing.
 *
 * Ranges are in bytes, [start, end), and count in whole sectors: what does not begin or end at one is grown outward.
 * Functions that change a set return 0 or a negative errno: -ENOMEM; -ERANGE for a range before 0 or beyond 2^62;
 * -EFBIG where more than 128 TiB are touched. What was added before the failure stays.
 */
#ifndef BLKREEL_BLOCK_SET_H
#define BLKREEL_BLOCK_SET_H

#include <stddef.h>
#include <stdint.h>

struct block_set;

/* NULL where there is no memory. */
struct block_set *block_set_new(void);
void block_set_free(struct block_set *set);

int block_set_add(struct block_set *set, const int64_t *start, const int64_t *end, size_t ranges);

/* I/Os in their order: what of them lies in no earlier one goes to `touched`, and to `read_first` where it is a read's. */
int block_set_first_touch(struct block_set *touched, struct block_set *read_first, const int64_t *start,
			  const int64_t *end, const uint8_t *is_read, size_t ios);

int64_t block_set_bytes(const struct block_set *set);

/* The end of the last range, 0 for none. */
int64_t block_set_limit(struct block_set *set);

/* How many ranges there are, neighbours joined. */
int64_t block_set_count(struct block_set *set);

/* Memory that the set holds. */
int64_t block_set_memory(const struct block_set *set);

/* The next ranges in ascending order, neighbours joined: those that begin at *cursor_bytes or later, at most `capacity`.
 * Moves the cursor behind the last one. Returns how many; 0 at the end, negative errno.
 */
int64_t block_set_next(struct block_set *set, int64_t *cursor_bytes, int64_t *start, int64_t *end, size_t capacity);

/* Whether the set is of whole blocks of that size as far as its bitmaps tell by their kind, so that growing changes nothing. */
int block_set_is_grown(const struct block_set *set, int64_t block_bytes);

/* The same, grown outward to whole blocks of a power of two of bytes, 512 to 32 MiB. NULL where there is no memory. */
struct block_set *block_set_grown(struct block_set *set, int64_t block_bytes);

/* Makes block_set_pack() possible, until the set is changed. Only for sets of whole 4 KiB blocks: -EINVAL otherwise. */
int block_set_rank(struct block_set *set);

/* Where offsets go when the set is packed to its beginning: bytes of the set before them. An offset outside the set goes
 * where the next one inside would, plus its place in its 4 KiB block.
 */
void block_set_pack(const struct block_set *set, const int64_t *offset, int64_t *packed, size_t offsets);

/* The set as bytes of this machine's order, to be kept. Returns the length; writes nothing where `capacity` is less. */
int64_t block_set_save(struct block_set *set, uint8_t *bytes, size_t capacity);

/* NULL for anything that block_set_save() cannot have written, and where there is no memory. */
struct block_set *block_set_load(const uint8_t *bytes, size_t length);

#endif
