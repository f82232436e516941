/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The time at each number of outstanding I/Os, for each class and for all. */
#pragma once

#include <errno.h>
#include <string.h>

#include "array.h"
#include "metrics.h"

struct depth {
	int64_t *ns; /* at each depth, up to now_ns */
	size_t capacity;
	size_t outstanding;
	int64_t now_ns; /* the last change: an idle class may have ended */
};

struct outstanding {
	int64_t complete_ns;
	int64_t kind;
};

#define NEAR 64
#define NEAR_SLOTS 512

/* The next completions are sorted in near[head] .. near[tail - 1]: few I/Os are outstanding as a rule, so an insertion
 * moves one or two. A heap holds the later ones. It is empty if `near` is.
 */
struct depths {
	struct depth of[CLASSES_AND_ALL];
	struct outstanding near[NEAR_SLOTS];
	size_t head;
	size_t tail;
	struct outstanding *heap;
	size_t heap_capacity;
	size_t heap_count;
};

int depths_push(struct depths *depths, int64_t complete_ns, int kind);
/* Called when `near` is empty. */
void depths_refill(struct depths *depths);
void depths_deinit(struct depths *depths);

/* Makes room for another outstanding I/O. Returns 0 or -ENOMEM. */
static inline int depth_reserve(struct depth *depth)
{
	size_t capacity = depth->capacity;

	if (depth->outstanding + 1 < capacity)
		return 0;
	if (array_grow(&depth->ns, &depth->capacity, sizeof(*depth->ns)))
		return -ENOMEM;
	memset(depth->ns + capacity, 0, (depth->capacity - capacity) * sizeof(*depth->ns));
	return 0;
}

static inline void depth_pass(struct depth *depth, int64_t now_ns)
{
	depth->ns[depth->outstanding] += now_ns - depth->now_ns;
	depth->now_ns = now_ns;
}

/* Ends the I/Os that have completed by now_ns. */
static inline void depths_pass(struct depths *depths, int64_t now_ns)
{
	while (depths->head < depths->tail && depths->near[depths->head].complete_ns <= now_ns) {
		const struct outstanding *next = &depths->near[depths->head++];
		struct depth *kind = &depths->of[next->kind], *all = &depths->of[CLASS_ALL];

		depth_pass(kind, next->complete_ns);
		depth_pass(all, next->complete_ns);
		kind->outstanding--;
		all->outstanding--;
		if (depths->head == depths->tail)
			depths_refill(depths);
	}
}

/* Adds an I/O, in submit order. is_first: bit 0 of its class, bit 1 of all. Returns 0 or -ENOMEM. */
static inline int depths_submit(struct depths *depths, int64_t submit_ns, int64_t complete_ns, int kind, int is_first)
{
	struct depth *both[] = { &depths->of[kind], &depths->of[CLASS_ALL] };

	depths_pass(depths, submit_ns);
	for (int i = 0; i < 2; i++) {
		struct depth *depth = both[i];

		if (depth_reserve(depth))
			return -ENOMEM;
		/* No time counts before the first I/O of a class. */
		if (is_first >> i & 1)
			depth->now_ns = submit_ns;
		depth_pass(depth, submit_ns);
		depth->outstanding += complete_ns > submit_ns;
	}
	return complete_ns > submit_ns ? depths_push(depths, complete_ns, kind) : 0;
}
