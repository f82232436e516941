/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is told of an interval: every row once, whatever the number of threads; buckets as tests/unit/test_live.py has them. */
#include "live.h"

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

static char *told(struct live *live)
{
	char *names = NULL, *members = NULL;
	size_t names_bytes, members_bytes;
	FILE *names_file = open_memstream(&names, &names_bytes), *file = open_memstream(&members, &members_bytes);
	size_t most = live_bytes(live);
	bool passed = live_print(live, names_file, file, 1);

	fclose(names_file);
	fclose(file);
	assert(names_bytes + members_bytes <= most);
	free(names);
	if (passed)
		return members;
	free(members);
	return NULL;
}

/* More threads than there are places: what has none is counted with the others. */
static void test_every_row_is_told_once(void)
{
	struct row_block *block = calloc(1, sizeof(*block));
	struct live *live = live_open();
	uint64_t ops, sum = 0;
	char *json, *at;

	for (int i = 0; i < 10000; i++) {
		struct io_record record = { .submit_ns = 100, .complete_ns = 300, .length_bytes = 4096, .tid = i + 1 };

		row_append(block, &record, NULL, 0);
	}
	block->posted_ns = 1000;
	live_add(live, block);
	json = told(live);
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
	assert(sum == LIVE_THREADS_TOLD && sum + ops == 10000);
	free(json);

	/* Nothing is left of it, and an interval without time is none. */
	assert(!told(live));
	block->rows = 0;
	block->posted_ns = 2000;
	live_add(live, block);
	json = told(live);
	assert(json && strstr(json, "\"begin_ns\": 1000, \"end_ns\": 2000, \"classes\": [], \"threads\": []"));
	free(json);
	free(block);
	live_close(live);
}

int main(void)
{
	test_buckets();
	test_every_row_is_told_once();
	return 0;
}
