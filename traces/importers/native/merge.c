/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "merge.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "heap.h"

#define TOLERATED_STEP_NS 1000000000ull

int merge_init(struct merge *merge, struct input *inputs, size_t input_count)
{
	*merge = (struct merge){ .inputs = inputs, .input_count = input_count };
	for (size_t i = 0; i < input_count; i++)
		inputs[i].fd = -1;
	merge->heap = calloc(input_count, sizeof(*merge->heap));
	return merge->heap ? 0 : -ENOMEM;
}

void merge_deinit(struct merge *merge)
{
	for (size_t i = 0; i < merge->input_count; i++)
		input_deinit(&merge->inputs[i]);
	free(merge->heap);
	merge->heap = NULL;
}

/* 1: input->event is its next; 0: none for now. */
static int ready(struct merge *merge, struct input *input)
{
	for (;;) {
		int found = input_peek(input);

		if (found < 0)
			break;
		if (found || input->live || input->ended)
			return found;
		if (input_fill(input))
			break;
	}
	merge->error = input->error;
	return -1;
}

/* At equal times the first-named stream is first, so that the same files give the same trace. */
static bool is_before(const void *context, struct input *one, struct input *other)
{
	(void)context;
	return one->event.time_ns < other->event.time_ns || (one->event.time_ns == other->event.time_ns && one < other);
}

DEFINE_HEAP(inputs, struct input *, const void *, is_before)

/* Inputs with has_event are in the heap: between two runs nothing else reads events. */
static int gather(struct merge *merge)
{
	merge->heap_count = 0;
	for (size_t i = 0; i < merge->input_count; i++) {
		int found = ready(merge, &merge->inputs[i]);

		if (found < 0)
			return -1;
		if (!found)
			continue;
		inputs_push(NULL, merge->heap, merge->heap_count++, &merge->inputs[i]);
	}
	return 0;
}

static int check_order(struct merge *merge, const struct input *input)
{
	if (input->event.time_ns >= input->last_ns || (input->event.category & CATEGORY_NOTIFY))
		return 0;
	merge->backward_steps++;
	if (input->last_ns - input->event.time_ns <= TOLERATED_STEP_NS)
		return 0;
	snprintf(merge->error_text, sizeof(merge->error_text),
		 "%s, byte %" PRIu64 ": time steps back by %.3f s, so it is not one CPU's stream nor in order; "
		 "put it in order with: blkparse -q -i %s -d ordered.bin > /dev/null", input->name, input->position,
		 (double)(input->last_ns - input->event.time_ns) / 1e9, input->name);
	merge->error = merge->error_text;
	return -1;
}

int merge_run(struct merge *merge, uint64_t limit_ns, merge_consumer consume, void *context)
{
	if (gather(merge))
		return -1;
	while (merge->heap_count && merge->heap[0]->event.time_ns <= limit_ns) {
		struct input *input = merge->heap[0];
		int found, err;

		if (check_order(merge, input))
			return -1;
		if (input->event.time_ns > merge->newest_ns && !(input->event.category & CATEGORY_NOTIFY))
			merge->newest_ns = input->event.time_ns;
		err = consume(context, input);
		if (err)
			return err;
		input_next(input);
		found = ready(merge, input);
		if (found < 0)
			return -1;
		merge->heap_count -= !found;
		inputs_replace(NULL, merge->heap, merge->heap_count, found ? input : merge->heap[merge->heap_count]);
		if (!found && input->live && !input->drained)
			return 0;
	}
	return 0;
}
