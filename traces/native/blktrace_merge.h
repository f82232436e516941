/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Many streams, each in order of time, as one. What it holds is one buffer a stream, however long they are. */
#ifndef BLKREEL_BLKTRACE_MERGE_H
#define BLKREEL_BLKTRACE_MERGE_H

#include "blktrace_input.h"

struct merge {
	struct input *inputs;
	size_t input_count;
	struct input **heap;
	size_t heap_count;
	uint64_t newest_ns;
	uint64_t backward_steps; /* events that stood before an earlier one of the same stream */
	const char *error;
	char error_text[640];
};

typedef int (*merge_consumer)(void *context, struct input *input);

/* Takes over the inputs, which may be opened afterwards. Returns 0 or a negative errno. */
int merge_open(struct merge *merge, struct input *inputs, size_t input_count);
void merge_close(struct merge *merge);

/*
 * Hands the events up to limit_ns to `consume`, each while it is its input's `event`. Files are read on as needed;
 * live inputs are not filled here: it returns early where one that may hold more has run dry.
 * Returns 0, or -1 with merge->error or what `consume` returned where that is negative.
 */
int merge_run(struct merge *merge, uint64_t limit_ns, merge_consumer consume, void *context);

#endif
