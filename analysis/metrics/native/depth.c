/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "depth.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"

static bool completes_before(const void *context, struct outstanding a, struct outstanding b)
{
	(void)context;
	return a.complete_ns < b.complete_ns;
}

DEFINE_HEAP(heap, struct outstanding, const void *, completes_before)

static int push_late(struct depths *depths, struct outstanding late)
{
	if (depths->heap_count == depths->heap_capacity &&
	    array_grow(&depths->heap, &depths->heap_capacity, sizeof(*depths->heap)))
		return -ENOMEM;
	heap_push(NULL, depths->heap, depths->heap_count++, late);
	return 0;
}

int depths_push(struct depths *depths, int64_t complete_ns, int kind)
{
	struct outstanding new = { complete_ns, kind };
	bool is_full = depths->tail - depths->head >= NEAR;
	struct outstanding *at;

	if (depths->heap_count || is_full) {
		int err;

		if (complete_ns >= depths->near[depths->tail - 1].complete_ns)
			return push_late(depths, new);
		err = is_full ? push_late(depths, depths->near[depths->tail - 1]) : 0;
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
	while (depths->heap_count && depths->tail < NEAR / 2) {
		depths->near[depths->tail++] = depths->heap[0];
		depths->heap_count--;
		heap_replace(NULL, depths->heap, depths->heap_count, depths->heap[depths->heap_count]);
	}
}

void depths_deinit(struct depths *depths)
{
	for (int kind = 0; kind < CLASSES_AND_ALL; kind++)
		free(depths->of[kind].ns);
	free(depths->heap);
}
