/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "due_heap.h"

#include <stdbool.h>

static bool is_before(const struct due *a, const struct due *b)
{
	return a->due_ns < b->due_ns || (a->due_ns == b->due_ns && a->order < b->order);
}

void due_heap_push(struct due_heap *heap, struct due entry)
{
	struct due *entries = heap->entries;
	unsigned at = heap->count++;

	for (; at && is_before(&entry, &entries[(at - 1) / 2]); at = (at - 1) / 2)
		entries[at] = entries[(at - 1) / 2];
	entries[at] = entry;
}

struct due due_heap_pop(struct due_heap *heap)
{
	struct due *entries = heap->entries, first = entries[0], last = entries[--heap->count];
	unsigned at = 0;

	for (;;) {
		unsigned child = 2 * at + 1;

		if (child >= heap->count)
			break;
		if (child + 1 < heap->count && is_before(&entries[child + 1], &entries[child]))
			child++;
		if (!is_before(&entries[child], &last))
			break;
		entries[at] = entries[child];
		at = child;
	}
	entries[at] = last;
	return first;
}
