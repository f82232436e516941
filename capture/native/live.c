/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "live.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SUB_BITS 4
#define NAMES_BYTES (64u << 10) /* that wait to be passed on; more than that nobody reads */
#define ENTRY_BYTES 24 /* of one bucket, printed */
#define COUNTS_BYTES 200 /* of the other members of a class, or of a thread, printed */

struct live *live_open(void)
{
	struct live *live = calloc(1, sizeof(*live));

	if (live)
		pthread_mutex_init(&live->lock, NULL);
	return live;
}

void live_close(struct live *live)
{
	if (!live)
		return;
	free(live->names);
	free(live);
}

uint32_t live_bucket(uint64_t latency_ns)
{
	unsigned int shift;

	if (latency_ns < 1u << SUB_BITS)
		return (uint32_t)latency_ns;
	shift = 63 - (unsigned int)__builtin_clzll(latency_ns) - SUB_BITS;
	return ((shift + 1) << SUB_BITS) | ((latency_ns >> shift) & ((1u << SUB_BITS) - 1));
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
	thread->write_bytes += op == OP_WRITE ? bytes : 0;
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

void live_keep_names(struct live *live, const char *json)
{
	static const char head[] = "{\"note\": \"threads\"";
	size_t length = strlen(json);
	char *grown;

	if (strncmp(json, head, sizeof(head) - 1))
		return;
	pthread_mutex_lock(&live->lock);
	if (live->names_bytes + length + 2 <= NAMES_BYTES) {
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

size_t live_bytes(struct live *live)
{
	size_t bytes = COUNTS_BYTES * (LIVE_THREADS_TOLD + 2);

	pthread_mutex_lock(&live->lock);
	for (size_t i = 0; i < MAX_DEVICES * OP_COUNT; i++) {
		const struct live_class *class = &live->classes[i / OP_COUNT][i % OP_COUNT];

		if (!has_class(class))
			continue;
		bytes += COUNTS_BYTES;
		for (int bucket = 0; bucket < LIVE_BUCKETS; bucket++)
			bytes += class->buckets[bucket] ? ENTRY_BYTES : 0;
	}
	bytes += live->names_bytes;
	pthread_mutex_unlock(&live->lock);
	return bytes;
}

static void print_class(FILE *file, size_t device, int op, const struct live_class *class)
{
	const char *between = "";

	fprintf(file, "{\"device\": %zu, \"op\": %d, \"ops\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"unseen\": %" PRIu64
		", \"errors\": %" PRIu64 ", \"latency_ns\": %" PRIu64 ", \"longest_ns\": %" PRIu64 ", \"buckets\": [",
		device, op, class->ops, class->bytes, class->unseen, class->errors, class->latency_ns, class->longest_ns);
	for (int i = 0; i < LIVE_BUCKETS; i++) {
		if (!class->buckets[i])
			continue;
		fprintf(file, "%s[%d, %u]", between, i, class->buckets[i]);
		between = ", ";
	}
	fputs("]}", file);
}

static void print_thread(FILE *file, const struct live_thread *thread, const char *before)
{
	fprintf(file, "%s[%d, %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", before, thread->tid, thread->ops,
		thread->read_bytes, thread->write_bytes, thread->latency_ns);
}

static const struct live *sorted; /* qsort passes nothing along; one capture, one thread that tells */

static int longest_first(const void *left, const void *right)
{
	uint64_t a = sorted->threads[*(const uint32_t *)left].latency_ns;
	uint64_t b = sorted->threads[*(const uint32_t *)right].latency_ns;

	return (a < b) - (a > b);
}

static void add_thread(struct live_thread *sum, const struct live_thread *thread)
{
	sum->ops += thread->ops;
	sum->read_bytes += thread->read_bytes;
	sum->write_bytes += thread->write_bytes;
	sum->latency_ns += thread->latency_ns;
}

/* Those that the drives served longest, and all others as one. */
static void print_threads(struct live *live, FILE *file)
{
	sorted = live;
	qsort(live->used, live->used_count, sizeof(live->used[0]), longest_first);
	fputs(", \"threads\": [", file);
	for (uint32_t i = 0; i < live->used_count; i++) {
		struct live_thread *thread = &live->threads[live->used[i]];

		if (i < LIVE_THREADS_TOLD)
			print_thread(file, thread, i ? ", " : "");
		else
			add_thread(&live->others, thread);
		memset(thread, 0, sizeof(*thread));
	}
	live->used_count = 0;
	fputs("]", file);
	live->others.tid = -1;
	print_thread(file, &live->others, ", \"others\": ");
	memset(&live->others, 0, sizeof(live->others));
}

static void print_classes(struct live *live, FILE *file, size_t device_count)
{
	const char *between = "";

	fputs(", \"classes\": [", file);
	for (size_t device = 0; device < device_count; device++) {
		for (int op = 0; op < OP_COUNT; op++) {
			struct live_class *class = &live->classes[device][op];

			if (!has_class(class))
				continue;
			fputs(between, file);
			print_class(file, device, op, class);
			memset(class, 0, sizeof(*class));
			between = ", ";
		}
	}
	fputs("]", file);
}

bool live_print(struct live *live, FILE *names, FILE *members, size_t device_count)
{
	bool passed;

	pthread_mutex_lock(&live->lock);
	passed = live->end_ns > live->begin_ns;
	if (passed) {
		if (live->names)
			fputs(live->names, names);
		free(live->names);
		live->names = NULL;
		live->names_bytes = 0;
		fprintf(members, "\"begin_ns\": %" PRIu64 ", \"end_ns\": %" PRIu64, live->begin_ns, live->end_ns);
		print_classes(live, members, device_count);
		print_threads(live, members);
		live->begin_ns = live->end_ns;
	}
	pthread_mutex_unlock(&live->lock);
	return passed;
}
