/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "depth.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_DEPTHS 64

int depth_grow(struct depth *depth)
{
	size_t capacity = depth->capacity ? depth->capacity * 2 : FIRST_DEPTHS;
	int64_t *ns = realloc(depth->ns, capacity * sizeof(*ns));

	if (!ns)
		return -ENOMEM;
	memset(ns + depth->capacity, 0, (capacity - depth->capacity) * sizeof(*ns));
	depth->ns = ns;
	depth->capacity = capacity;
	return 0;
}

int depths_push(struct depths *depths, int64_t complete_ns, int kind)
{
	size_t at = depths->count;

	if (at == depths->capacity) {
		size_t capacity = at ? at * 2 : FIRST_DEPTHS;
		struct outstanding *heap = realloc(depths->heap, capacity * sizeof(*heap));

		if (!heap)
			return -ENOMEM;
		depths->heap = heap;
		depths->capacity = capacity;
	}
	depths->count++;
	while (at && depths->heap[(at - 1) / 2].complete_ns > complete_ns) {
		depths->heap[at] = depths->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	depths->heap[at] = (struct outstanding){ complete_ns, kind };
	return 0;
}

void depths_pop(struct depths *depths)
{
	struct outstanding *heap = depths->heap, last = heap[--depths->count];
	size_t at = 0, count = depths->count;

	for (size_t child = 1; child < count; child = 2 * at + 1) {
		child += child + 1 < count && heap[child + 1].complete_ns < heap[child].complete_ns;
		if (last.complete_ns <= heap[child].complete_ns)
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = last;
}

void depths_deinit(struct depths *depths)
{
	for (int kind = 0; kind < CLASSES_AND_ALL; kind++)
		free(depths->of[kind].ns);
	free(depths->heap);
}
