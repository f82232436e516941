/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Merges streams that are each in order of time. Memory: one buffer per stream. */
#pragma once

#include "input.h"

struct merge {
	struct input *inputs;
	size_t input_count;
	struct input **heap;
	size_t heap_count;
	uint64_t newest_ns;
	uint64_t backward_steps; /* events that are later than their successor in a stream */
	const char *error;
	char error_text[640];
};

typedef int (*merge_consumer)(void *context, struct input *input);

/* Takes over the inputs, which may be opened afterwards. Returns 0 or a negative errno. */
int merge_init(struct merge *merge, struct input *inputs, size_t input_count);
void merge_deinit(struct merge *merge);

/*
 * Passes the events up to limit_ns to `consume`, each as its input's `event`. Reads files as needed, but not live
 * inputs: it returns early if one of them is empty and has not ended. Returns 0, -1 with merge->error, or a negative
 * result of `consume`.
 */
int merge_run(struct merge *merge, uint64_t limit_ns, merge_consumer consume, void *context);
