/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Written data: every 4 KiB differs from every other, across several rounds of the pool; and it does not compress. */
#include <string.h>
#include <zlib.h>

#include "check.h"
#include "payload.h"
#include "target.h"

#define PIECES 60000 /* more than seven rounds of the pool */

static int by_content(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct payload_stamp));
}

static void test_every_piece_differs(void)
{
	struct payload_stamp *stamps = calloc(PIECES, sizeof(*stamps));
	struct payload payload;
	unsigned count = 0;

	CHECK(stamps);
	CHECK_EQUAL(payload_init(&payload, &(struct payload_options){ .seed = 7, .writes = true }), 0);
	while (count < PIECES) {
		unsigned pieces = 1 + count % 5;
		/* All to the same place: the stamp must differ by its counter alone. */
		char *data = payload_take(&payload, 1 << 20, pieces * STAMP_EVERY_BYTES);

		CHECK_EQUAL((uintptr_t)data % STAMP_EVERY_BYTES, 0);
		CHECK(data >= payload.pool && data + pieces * STAMP_EVERY_BYTES <= payload.pool + payload.pool_bytes);
		for (unsigned i = 0; i < pieces && count < PIECES; i++, count++) {
			memcpy(&stamps[count], data + i * STAMP_EVERY_BYTES, sizeof(*stamps));
			CHECK_EQUAL(stamps[count].offset_bytes, (1 << 20) + i * STAMP_EVERY_BYTES);
			stamps[count].offset_bytes = 0;
		}
	}
	qsort(stamps, PIECES, sizeof(*stamps), by_content);
	for (unsigned i = 1; i < PIECES; i++)
		CHECK(by_content(&stamps[i - 1], &stamps[i]));
	free(stamps);
	payload_deinit(&payload);
}

static void test_incompressible(void)
{
	struct payload payload;
	uLong whole = 1 << 20, room = compressBound(whole);
	Bytef *packed = malloc(room);

	CHECK(packed);
	CHECK_EQUAL(payload_init(&payload, &(struct payload_options){ .writes = true }), 0);
	CHECK_EQUAL(compress2(packed, &room, payload_take(&payload, 0, whole), whole, 9), Z_OK);
	CHECK(room >= whole);
	free(packed);
	payload_deinit(&payload);
}

/* How many of the pieces taken are copies of others, of a hundred. */
static unsigned copies_percent(struct payload *payload)
{
	unsigned pieces = payload->pool_bytes / STAMP_EVERY_BYTES, copies = 0;

	for (unsigned i = 0; i < pieces; i++) {
		struct payload_stamp stamp;

		memcpy(&stamp, payload_take(payload, 1 << 20, STAMP_EVERY_BYTES), sizeof(stamp));
		CHECK(stamp.offset_bytes == COPY_OFFSET || stamp.offset_bytes == 1 << 20);
		copies += stamp.offset_bytes == COPY_OFFSET;
	}
	return (copies * 100 + pieces / 2) / pieces;
}

static void test_shares(void)
{
	static const unsigned percents[] = { 0, 1, 10, 25, 50, 75, 99, 100 };
	const uLong whole = 1 << 20;
	Bytef *packed = malloc(compressBound(whole));

	CHECK(packed);
	for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
		struct payload_options options = { .seed = i, .writes = true, .duplicates_percent = percents[i],
						   .compressible_percent = percents[i] };
		uLong room = compressBound(whole);
		struct payload payload;

		CHECK_EQUAL(payload_init(&payload, &options), 0);
		CHECK_EQUAL(copies_percent(&payload), percents[i]);
		CHECK_EQUAL(compress2(packed, &room, payload_take(&payload, 0, whole), whole, 1), Z_OK);
		CHECK(labs((long)(room * 100 / whole) - (long)(100 - percents[i])) <= 2);
		payload_deinit(&payload);
	}
	free(packed);
}

static void test_seeds_differ(void)
{
	struct payload one, two;

	CHECK_EQUAL(payload_init(&one, &(struct payload_options){ .seed = 1, .writes = true }), 0);
	CHECK_EQUAL(payload_init(&two, &(struct payload_options){ .seed = 2, .writes = true }), 0);
	CHECK(memcmp(payload_take(&one, 0, 4096), payload_take(&two, 0, 4096), 4096));
	payload_deinit(&one);
	payload_deinit(&two);
}

static void test_reads_stay_in_the_sink(void)
{
	static const size_t lengths[] = { 512, 4096, 131072, PIECE_MAX_BYTES, 4608 };
	struct payload payload;

	CHECK_EQUAL(payload_init(&payload, &(struct payload_options){ 0 }), 0);
	CHECK(!payload.pool);
	for (int i = 0; i < 5000; i++) {
		size_t length = lengths[i % 5];
		char *data = payload_sink(&payload, length);

		CHECK(data >= payload.sink && data + length <= payload.sink + payload.sink_bytes);
		CHECK_EQUAL((uintptr_t)data % 4096, 0);
	}
	payload_deinit(&payload);
}

int main(void)
{
	test_every_piece_differs();
	test_incompressible();
	test_shares();
	test_seeds_differ();
	test_reads_stay_in_the_sink();
	return 0;
}
