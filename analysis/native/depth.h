/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How long how many I/Os were outstanding, of each class and of all. */
#ifndef BLKREEL_DEPTH_H
#define BLKREEL_DEPTH_H

#include <errno.h>

#include "metrics.h"

/* Time counts until now_ns: a class that rests has none yet, because whether it goes on is not known. */
struct depth {
	int64_t *ns;
	size_t capacity;
	size_t outstanding;
	int64_t now_ns;
};

struct outstanding {
	int64_t complete_ns;
	int64_t kind;
};

/* heap: the earliest completion first. */
struct depths {
	struct depth of[CLASSES_AND_ALL];
	struct outstanding *heap;
	size_t capacity;
	size_t count;
};

int depths_push(struct depths *depths, int64_t complete_ns, int kind);
void depths_pop(struct depths *depths);
void depths_deinit(struct depths *depths);

/* Room for one more I/O of a class. -ENOMEM */
int depth_grow(struct depth *depth);

static inline void depth_pass(struct depth *depth, int64_t now_ns)
{
	depth->ns[depth->outstanding] += now_ns - depth->now_ns;
	depth->now_ns = now_ns;
}

/* Ends the I/Os that were completed by that time. */
static inline void depths_pass(struct depths *depths, int64_t now_ns)
{
	while (depths->count && depths->heap[0].complete_ns <= now_ns) {
		struct depth *kind = &depths->of[depths->heap[0].kind], *all = &depths->of[CLASS_ALL];

		depth_pass(kind, depths->heap[0].complete_ns);
		depth_pass(all, depths->heap[0].complete_ns);
		kind->outstanding--;
		all->outstanding--;
		depths_pop(depths);
	}
}

/* A submit, in their order. -ENOMEM */
static inline int depths_submit(struct depths *depths, int64_t submit_ns, int64_t complete_ns, int kind, int is_first)
{
	struct depth *both[] = { &depths->of[kind], &depths->of[CLASS_ALL] };

	depths_pass(depths, submit_ns);
	for (int i = 0; i < 2; i++) {
		struct depth *depth = both[i];

		if (depth->outstanding + 1 >= depth->capacity && depth_grow(depth))
			return -ENOMEM;
		/* Before the first of a class there is no time to count. */
		if (is_first >> i & 1)
			depth->now_ns = submit_ns;
		depth_pass(depth, submit_ns);
		depth->outstanding += complete_ns > submit_ns;
	}
	return complete_ns > submit_ns ? depths_push(depths, complete_ns, kind) : 0;
}

#endif
