/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "depth.h"

#include <stdbool.h>
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

static int push_far(struct depths *depths, struct outstanding late)
{
	size_t at = depths->far_count;

	if (at == depths->far_capacity) {
		size_t capacity = at ? at * 2 : FIRST_DEPTHS;
		struct outstanding *far = realloc(depths->far, capacity * sizeof(*far));

		if (!far)
			return -ENOMEM;
		depths->far = far;
		depths->far_capacity = capacity;
	}
	depths->far_count++;
	while (at && depths->far[(at - 1) / 2].complete_ns > late.complete_ns) {
		depths->far[at] = depths->far[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	depths->far[at] = late;
	return 0;
}

static struct outstanding pop_far(struct depths *depths)
{
	struct outstanding *far = depths->far, first = far[0], last = far[--depths->far_count];
	size_t at = 0, count = depths->far_count;

	for (size_t child = 1; child < count; child = 2 * at + 1) {
		child += child + 1 < count && far[child + 1].complete_ns < far[child].complete_ns;
		if (last.complete_ns <= far[child].complete_ns)
			break;
		far[at] = far[child];
		at = child;
	}
	far[at] = last;
	return first;
}

int depths_push(struct depths *depths, int64_t complete_ns, int kind)
{
	struct outstanding new = { complete_ns, kind };
	bool is_full = depths->tail - depths->head >= NEAR;
	struct outstanding *at;

	if (depths->far_count || is_full) {
		int err;

		if (complete_ns >= depths->near[depths->tail - 1].complete_ns)
			return push_far(depths, new);
		err = is_full ? push_far(depths, depths->near[depths->tail - 1]) : 0;
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

/* Called when the last one near has gone. */
void depths_refill(struct depths *depths)
{
	depths->head = depths->tail = 0;
	while (depths->far_count && depths->tail < NEAR / 2)
		depths->near[depths->tail++] = pop_far(depths);
}

void depths_deinit(struct depths *depths)
{
	for (int kind = 0; kind < CLASSES_AND_ALL; kind++)
		free(depths->of[kind].ns);
	free(depths->far);
}
