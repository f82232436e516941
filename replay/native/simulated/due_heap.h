/* SPDX-License-Identifier: GPL-2.0-or-later */
/* I/Os in the order in which they are due. */
#ifndef BLKREEL_DUE_HEAP_H
#define BLKREEL_DUE_HEAP_H

#include <stdint.h>

struct due {
	int64_t due_ns;
	uint64_t order; /* of submission; decides between equal times */
	uint32_t slot;
	int16_t target;
	int8_t op;
};

/* A binary heap; its owner allocates `entries`. */
struct due_heap {
	struct due *entries;
	unsigned count;
};

void due_heap_push(struct due_heap *heap, struct due entry);

/* Removes and returns the entry that is due first. The heap must not be empty. */
struct due due_heap_pop(struct due_heap *heap);

#endif
