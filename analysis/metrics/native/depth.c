/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "depth.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int heap_push(struct depths *depths, struct outstanding late)
{
	size_t at = depths->heap_count;

	if (at == depths->heap_capacity && array_grow(&depths->heap, &depths->heap_capacity, sizeof(*depths->heap)))
		return -ENOMEM;
	depths->heap_count++;
	while (at && depths->heap[(at - 1) / 2].complete_ns > late.complete_ns) {
		depths->heap[at] = depths->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	depths->heap[at] = late;
	return 0;
}

static struct outstanding heap_pop(struct depths *depths)
{
	struct outstanding *heap = depths->heap, first = heap[0], last = heap[--depths->heap_count];
	size_t at = 0, count = depths->heap_count;

	for (size_t child = 1; child < count; child = 2 * at + 1) {
		child += child + 1 < count && heap[child + 1].complete_ns < heap[child].complete_ns;
		if (last.complete_ns <= heap[child].complete_ns)
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = last;
	return first;
}

int depths_push(struct depths *depths, int64_t complete_ns, int kind)
{
	struct outstanding new = { complete_ns, kind };
	bool is_full = depths->tail - depths->head >= NEAR;
	struct outstanding *at;

	if (depths->heap_count || is_full) {
		int err;

		if (complete_ns >= depths->near[depths->tail - 1].complete_ns)
			return heap_push(depths, new);
		err = is_full ? heap_push(depths, depths->near[depths->tail - 1]) : 0;
		if (err)
			return err;
		depths->tail -= is_full;
	}
	if (depths->tail == NEAR_SLOTS) {
		depths->tail -= depths->head;
		memmove(depths->near, depths->near + depths->head, depths->tail * sizeof(*depths->near));
		depths->head = 0;
	}
	for (at = &depths->near[depths->tail++]; at > &depths->near[depths->head] && at[-1].complete_ns > complete_ns; at--)
		*at = at[-1];
	*at = new;
	return 0;
}

void depths_refill(struct depths *depths)
{
	depths->head = depths->tail = 0;
	while (depths->heap_count && depths->tail < NEAR / 2)
		depths->near[depths->tail++] = heap_pop(depths);
}

void depths_deinit(struct depths *depths)
{
	for (int kind = 0; kind < CLASSES_AND_ALL; kind++)
		free(depths->of[kind].ns);
	free(depths->heap);
}
