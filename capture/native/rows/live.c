/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "live.h"
#include "binning.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BUCKET_BITS 4
#define MAX_NAMES_BYTES (64u << 10) /* more threads than that do not fit on a screen */
#define BUCKET_BYTES 24 /* printed */
#define COUNTS_BYTES 200 /* the other members of a class, or a thread, printed */

struct live *live_create(void)
{
	struct live *live = calloc(1, sizeof(*live));

	if (live)
		pthread_mutex_init(&live->lock, NULL);
	return live;
}

void live_destroy(struct live *live)
{
	if (!live)
		return;
	pthread_mutex_destroy(&live->lock);
	free(live->names);
	free(live);
}

uint32_t live_bucket(uint64_t latency_ns)
{
	return log_linear_bin(latency_ns, BUCKET_BITS);
}

static struct live_thread *thread_of(struct live *live, int32_t tid)
{
	uint32_t at = ((uint32_t)tid * 2654435761u) & (LIVE_THREADS - 1);

	while (live->threads[at].ops && live->threads[at].tid != tid)
		at = (at + 1) & (LIVE_THREADS - 1);
	if (live->threads[at].ops)
		return &live->threads[at];
	if (live->used_count >= LIVE_THREADS / 4 * 3)
		return &live->others;
	live->used[live->used_count++] = at;
	live->threads[at].tid = tid;
	return &live->threads[at];
}

static void add_row(struct live *live, const struct row_block *block, uint32_t i)
{
	uint8_t op = (uint8_t)block->op[i];
	int16_t device = block->device[i];
	uint64_t bytes = (uint64_t)block->length_bytes[i];
	struct live_thread *thread;
	struct live_class *class;

	if (op >= OP_COUNT || device < 0 || device >= MAX_DEVICES)
		return;
	class = &live->classes[device][op];
	class->errors += block->status[i] != 0;
	if (block->latency_ns[i] < 0) {
		class->unseen++;
		return;
	}
	class->ops++;
	class->bytes += bytes;
	class->latency_ns += (uint64_t)block->latency_ns[i];
	if ((uint64_t)block->latency_ns[i] > class->longest_ns)
		class->longest_ns = (uint64_t)block->latency_ns[i];
	class->buckets[live_bucket((uint64_t)block->latency_ns[i])]++;
	thread = thread_of(live, block->tid[i]);
	thread->ops++;
	thread->read_bytes += op == OP_READ ? bytes : 0;
	thread->write_bytes += op_is_write(op) ? bytes : 0;
	thread->latency_ns += (uint64_t)block->latency_ns[i];
}

void live_add(struct live *live, const struct row_block *block)
{
	pthread_mutex_lock(&live->lock);
	for (uint32_t i = 0; i < block->rows; i++)
		add_row(live, block, i);
	if (block->posted_ns > live->end_ns)
		live->end_ns = block->posted_ns;
	pthread_mutex_unlock(&live->lock);
}

void live_add_names(struct live *live, const char *json)
{
	static const char head[] = "{\"note\": \"threads\"";
	size_t length = strlen(json);
	char *grown;

	if (strncmp(json, head, sizeof(head) - 1))
		return;
	pthread_mutex_lock(&live->lock);
	if (live->names_bytes + length + 2 <= MAX_NAMES_BYTES) {
		grown = realloc(live->names, live->names_bytes + length + 2);
		if (grown) {
			live->names = grown;
			memcpy(grown + live->names_bytes, json, length);
			live->names_bytes += length;
			grown[live->names_bytes++] = '\n';
			grown[live->names_bytes] = '\0';
		}
	}
	pthread_mutex_unlock(&live->lock);
}

static bool has_class(const struct live_class *class)
{
	return class->ops || class->unseen;
}

size_t live_max_bytes(struct live *live)
{
	size_t bytes = COUNTS_BYTES * (LIVE_THREADS_LISTED + 2);

	pthread_mutex_lock(&live->lock);
	for (size_t i = 0; i < MAX_DEVICES * OP_COUNT; i++) {
		const struct live_class *class = &live->classes[i / OP_COUNT][i % OP_COUNT];

		if (!has_class(class))
			continue;
		bytes += COUNTS_BYTES;
		for (int bucket = 0; bucket < LIVE_BUCKETS; bucket++)
			bytes += class->buckets[bucket] ? BUCKET_BYTES : 0;
	}
	bytes += live->names_bytes;
	pthread_mutex_unlock(&live->lock);
	return bytes;
}

static void print_class(FILE *file, size_t device, int op, const struct live_class *class)
{
	const char *separator = "";

	fprintf(file, "{\"device\": %zu, \"op\": %d, \"ops\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"unseen\": %" PRIu64
		", \"errors\": %" PRIu64 ", \"latency_ns\": %" PRIu64 ", \"longest_ns\": %" PRIu64 ", \"buckets\": [",
		device, op, class->ops, class->bytes, class->unseen, class->errors, class->latency_ns, class->longest_ns);
	for (int i = 0; i < LIVE_BUCKETS; i++) {
		if (!class->buckets[i])
			continue;
		fprintf(file, "%s[%d, %u]", separator, i, class->buckets[i]);
		separator = ", ";
	}
	fputs("]}", file);
}

static void print_thread(FILE *file, const struct live_thread *thread, const char *before)
{
	fprintf(file, "%s[%d, %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", before, thread->tid, thread->ops,
		thread->read_bytes, thread->write_bytes, thread->latency_ns);
}

static int longest_first(const void *left, const void *right, void *threads)
{
	const struct live_thread *a = (const struct live_thread *)threads + *(const uint32_t *)left;
	const struct live_thread *b = (const struct live_thread *)threads + *(const uint32_t *)right;

	return (a->latency_ns < b->latency_ns) - (a->latency_ns > b->latency_ns);
}

static void add_thread(struct live_thread *sum, const struct live_thread *thread)
{
	sum->ops += thread->ops;
	sum->read_bytes += thread->read_bytes;
	sum->write_bytes += thread->write_bytes;
	sum->latency_ns += thread->latency_ns;
}

/* The threads with the highest sums of latencies, and the sum of all others. */
static void print_threads(struct live *live, FILE *file)
{
	qsort_r(live->used, live->used_count, sizeof(live->used[0]), longest_first, live->threads);
	fputs(", \"threads\": [", file);
	for (uint32_t i = 0; i < live->used_count; i++) {
		struct live_thread *thread = &live->threads[live->used[i]];

		if (i < LIVE_THREADS_LISTED)
			print_thread(file, thread, i ? ", " : "");
		else
			add_thread(&live->others, thread);
		memset(thread, 0, sizeof(*thread));
	}
	live->used_count = 0;
	fputs("]", file);
	live->others.tid = -1;
	print_thread(file, &live->others, ", \"others\": ");
	live->others = (struct live_thread){ 0 };
}

static void print_classes(struct live *live, FILE *file, size_t device_count)
{
	const char *separator = "";

	fputs(", \"classes\": [", file);
	for (size_t device = 0; device < device_count; device++) {
		for (int op = 0; op < OP_COUNT; op++) {
			struct live_class *class = &live->classes[device][op];

			if (!has_class(class))
				continue;
			fputs(separator, file);
			print_class(file, device, op, class);
			memset(class, 0, sizeof(*class));
			separator = ", ";
		}
	}
	fputs("]", file);
}

bool live_print_names(struct live *live, FILE *file)
{
	bool passed;

	pthread_mutex_lock(&live->lock);
	passed = live->end_ns > live->begin_ns;
	if (passed && live->names) {
		fputs(live->names, file);
		free(live->names);
		live->names = NULL;
		live->names_bytes = 0;
	}
	pthread_mutex_unlock(&live->lock);
	return passed;
}

void live_print_interval(struct live *live, FILE *file, size_t device_count)
{
	pthread_mutex_lock(&live->lock);
	fprintf(file, "\"begin_ns\": %" PRIu64 ", \"end_ns\": %" PRIu64, live->begin_ns, live->end_ns);
	print_classes(live, file, device_count);
	print_threads(live, file);
	live->begin_ns = live->end_ns;
	pthread_mutex_unlock(&live->lock);
}
