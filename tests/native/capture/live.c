/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Intervals of the live view: every row once, with any number of threads; buckets as in tests/unit/cli/test_live.py. */
#include "rows/live.h"
#include "text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	uint64_t latency_ns;
	uint32_t bucket;
} known[] = {
	{ 0, 0 }, { 15, 15 }, { 16, 16 }, { 31, 31 }, { 32, 32 }, { 33, 32 }, { 34, 33 }, { 1000, 111 }, { 1023, 111 },
	{ 1024, 112 }, { 100000, 216 }, { 1000000, 270 }, { 1234567, 274 }, { 4000000000, 461 }, { 3600000000000, 618 },
};

static void test_buckets(void)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		assert(live_bucket(known[i].latency_ns) == known[i].bucket);
	assert(live_bucket(UINT64_MAX) < LIVE_BUCKETS);
}

/* The interval as JSON members, NULL where there is none. */
static char *next_interval(struct live *live)
{
	size_t most = live_max_bytes(live);
	TEXT(text) = { 0 };
	char *json;

	assert(!text_init(&text));
	if (!live_print_names(live, text.file))
		return NULL;
	live_print_interval(live, text.file, 1);
	json = text_finish(&text);
	assert(json && strlen(json) <= most);
	return json;
}

/* More threads than entries: the rest is counted with the others. */
static void test_every_row_is_counted_once(void)
{
	struct row_block *block = calloc(1, sizeof(*block));
	struct live *live = live_create();
	uint64_t ops, sum = 0;
	char *json, *at;

	for (int i = 0; i < 10000; i++) {
		struct io_record record = { .submit_ns = 100, .complete_ns = 300, .length_bytes = 4096, .tid = i + 1 };

		row_append(block, &record, NULL, 0);
	}
	block->posted_ns = 1000;
	live_add(live, block);
	json = next_interval(live);
	assert(json && strstr(json, "\"begin_ns\": 0, \"end_ns\": 1000"));
	assert(strstr(json, "\"ops\": 10000, \"bytes\": 40960000, \"unseen\": 0"));
	assert(strstr(json, "\"latency_ns\": 2000000, \"longest_ns\": 200, \"buckets\": [[73, 10000]]"));
	at = strstr(json, "\"threads\": [") + strlen("\"threads\": [");
	while (sscanf(at, "[%*d, %" SCNu64, &ops) == 1) {
		sum += ops;
		at = strchr(at, ']') + 1;
		at += *at == ',' ? 2 : 0;
	}
	assert(sscanf(strstr(json, "\"others\": "), "\"others\": [-1, %" SCNu64, &ops) == 1);
	assert(sum == LIVE_THREADS_LISTED && sum + ops == 10000);
	free(json);

	/* Nothing is left of it, and an interval without time is empty. */
	assert(!next_interval(live));
	block->rows = 0;
	block->posted_ns = 2000;
	live_add(live, block);
	json = next_interval(live);
	assert(json && strstr(json, "\"begin_ns\": 1000, \"end_ns\": 2000, \"classes\": [], \"threads\": []"));
	free(json);
	free(block);
	live_destroy(live);
}

/* The ring is read from before the start on: a machine that is busy then leaves it time for a block. */
static void test_a_block_before_the_start(void)
{
	const uint64_t now_ns = 36000000000000; /* since boot */
	struct row_block *block = calloc(1, sizeof(*block));
	struct live *live = live_create();
	char *json;

	block->posted_ns = row_posted_ns(now_ns, 0);
	live_add(live, block);
	block->posted_ns = row_posted_ns(now_ns, now_ns + 1);
	live_add(live, block);
	assert(!next_interval(live));
	block->posted_ns = row_posted_ns(now_ns + 500, now_ns + 1);
	live_add(live, block);
	json = next_interval(live);
	assert(json && strstr(json, "\"begin_ns\": 0, \"end_ns\": 499"));
	free(json);
	live_destroy(live);
	free(block);
}

int main(void)
{
	test_buckets();
	test_a_block_before_the_start();
	test_every_row_is_counted_once();
	return 0;
}
