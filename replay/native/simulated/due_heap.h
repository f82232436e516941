/* SPDX-License-Identifier: GPL-2.0-or-later */
/* I/Os in the order in which they are due. */
#pragma once

#include <stdint.h>

#include "heap.h"

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

static inline bool due_is_before(const void *context, struct due a, struct due b)
{
	(void)context;
	return a.due_ns < b.due_ns || (a.due_ns == b.due_ns && a.order < b.order);
}

DEFINE_HEAP(dues, struct due, const void *, due_is_before)

static inline void due_heap_push(struct due_heap *heap, struct due entry)
{
	dues_push(NULL, heap->entries, heap->count++, entry);
}

/* Removes and returns the entry that is due first. The heap must not be empty. */
static inline struct due due_heap_pop(struct due_heap *heap)
{
	struct due first = heap->entries[0], last = heap->entries[--heap->count];

	dues_replace(NULL, heap->entries, heap->count, last);
	return first;
}
