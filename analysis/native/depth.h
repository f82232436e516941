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

#define NEAR 64
#define NEAR_SLOTS 512

/* The next completions are in order, near[head] .. near[tail - 1], because few are outstanding as a rule and each is put
 * in by moving one or two. far: those behind them where there are many, as a heap. None where `near` is empty.
 */
struct depths {
	struct depth of[CLASSES_AND_ALL];
	struct outstanding near[NEAR_SLOTS];
	size_t head;
	size_t tail;
	struct outstanding *far;
	size_t far_capacity;
	size_t far_count;
};

int depths_push(struct depths *depths, int64_t complete_ns, int kind);
void depths_refill(struct depths *depths);
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
