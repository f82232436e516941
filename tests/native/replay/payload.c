/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Written data: every 4 KiB differs from every other, across several rounds of the pool; it does not compress; and it
 * stays as it is until its write is done.
 */
#include <string.h>
#include <zlib.h>

#include "check.h"
#include "target/payload.h"
#include "target/target.h"

#define PIECES 60000 /* more than seven rounds of the pool */

static int by_content(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct payload_stamp));
}

/* The data of a write that completes before the next one begins. */
static void *take(struct payload *payload, int64_t offset_bytes, size_t length_bytes)
{
	void *data = payload_claim(payload, length_bytes);

	payload_put_stamps(payload, data, offset_bytes, length_bytes);
	payload_release(payload, data, length_bytes);
	return data;
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
		/* At the same offset only the counter of the stamp differs. */
		char *data = take(&payload, 1 << 20, pieces * STAMP_EVERY_BYTES);

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

/* Percent of the pieces taken that are copies. */
static unsigned copies_percent(struct payload *payload)
{
	unsigned pieces = payload->pool_bytes / STAMP_EVERY_BYTES, copies = 0;

	for (unsigned i = 0; i < pieces; i++) {
		struct payload_stamp stamp;

		memcpy(&stamp, take(payload, 1 << 20, STAMP_EVERY_BYTES), sizeof(stamp));
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
		CHECK_EQUAL(compress2(packed, &room, take(&payload, 0, whole), whole, 1), Z_OK);
		CHECK(labs((long)(room * 100 / whole) - (long)(100 - percents[i])) <= 2);
		CHECK(percents[i] || room >= whole);
		payload_deinit(&payload);
	}
	free(packed);
}

static void test_seeds_differ(void)
{
	struct payload one, two;

	CHECK_EQUAL(payload_init(&one, &(struct payload_options){ .seed = 1, .writes = true }), 0);
	CHECK_EQUAL(payload_init(&two, &(struct payload_options){ .seed = 2, .writes = true }), 0);
	CHECK(memcmp(take(&one, 0, 4096), take(&two, 0, 4096), 4096));
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

/* An outstanding write and a copy of its data at submission. */
struct outstanding {
	char *data;
	size_t length_bytes;
	char *sent;
};

static void begin(struct payload *payload, struct outstanding *write, uint64_t number, size_t length_bytes)
{
	write->length_bytes = length_bytes;
	write->data = payload_claim(payload, length_bytes);
	payload_put_stamps(payload, write->data, number << 20, length_bytes);
	write->sent = malloc(length_bytes);
	CHECK(write->sent);
	memcpy(write->sent, write->data, length_bytes);
}

static void end(struct payload *payload, struct outstanding *write)
{
	CHECK(!memcmp(write->data, write->sent, write->length_bytes));
	payload_release(payload, write->data, write->length_bytes);
	free(write->sent);
	*write = (struct outstanding){ 0 };
}

static void test_slow_write_keeps_its_data(void)
{
	struct outstanding slow, quick;
	struct payload payload;

	CHECK_EQUAL(payload_init(&payload, &(struct payload_options){ .writes = true }), 0);
	begin(&payload, &slow, 0, 64 << 10);
	/* It does not delay others: three rounds of the pool pass it. */
	for (size_t sent = 0; sent < 3 * payload.pool_bytes; sent += 12 << 10) {
		CHECK(payload_has_room(&payload, 12 << 10));
		begin(&payload, &quick, 1, 12 << 10);
		end(&payload, &quick);
	}
	end(&payload, &slow);
	payload_deinit(&payload);
}

#define WRITES 64

/* Writes of all lengths complete in any order, with a full pool. */
static void test_completions_in_any_order(void)
{
	static const size_t lengths[] = { 512, 4096, 4608, 65536, 258048, 1 << 20, PIECE_MAX_BYTES, ROW_WINDOW_BYTES };
	struct outstanding writes[WRITES] = { 0 };
	size_t full = 0, most = 0;
	struct payload payload;

	CHECK_EQUAL(payload_init(&payload, &(struct payload_options){ .writes = true }), 0);
	srandom(3);
	for (unsigned i = 0; i < 4000; i++) {
		struct outstanding *write = &writes[random() % WRITES];
		size_t length_bytes = lengths[random() % 8], outstanding = 0;

		if (write->data)
			end(&payload, write);
		else if (payload_has_room(&payload, length_bytes))
			begin(&payload, write, i, length_bytes);
		else
			full++;
		for (unsigned k = 0; k < WRITES; k++)
			outstanding += writes[k].data ? payload_whole_bytes(writes[k].length_bytes) : 0;
		CHECK_EQUAL(payload.free_pieces * STAMP_EVERY_BYTES, payload.pool_bytes - outstanding);
		most = outstanding > most ? outstanding : most;
	}
	CHECK(full > 0 && most > payload.pool_bytes / 2);
	for (unsigned i = 0; i < WRITES; i++)
		if (writes[i].data)
			end(&payload, &writes[i]);
	CHECK(payload_has_room(&payload, payload.pool_bytes));
	payload_deinit(&payload);
}

/* Writes of one length fill the entire pool after completions in any order. */
static void test_equal_writes_fill_the_pool(void)
{
	struct outstanding writes[32];
	struct payload payload;

	CHECK_EQUAL(payload_init(&payload, &(struct payload_options){ .writes = true }), 0);
	for (unsigned i = 0; i < 32; i++)
		begin(&payload, &writes[i], i, 1 << 20);
	CHECK(!payload_has_room(&payload, 512));
	for (unsigned i = 0; i < 1000; i++) {
		struct outstanding *write = &writes[i * 13 % 32];

		end(&payload, write);
		CHECK(payload_has_room(&payload, 1 << 20));
		CHECK(!payload_has_room(&payload, (1 << 20) + 512));
		begin(&payload, write, i, 1 << 20);
	}
	for (unsigned i = 0; i < 32; i++)
		end(&payload, &writes[i]);
	payload_deinit(&payload);
}

static void test_the_share_of_a_thread(void)
{
	const size_t mib = 1 << 20;

	CHECK_EQUAL(payload_share_bytes(1, 0), 32 * mib);
	CHECK_EQUAL(payload_share_bytes(2, 0), 16 * mib);
	CHECK_EQUAL(payload_share_bytes(8, 0), 2 * ROW_WINDOW_BYTES);
	CHECK_EQUAL(payload_share_bytes(1, 128 * mib), 128 * mib);
	CHECK_EQUAL(payload_share_bytes(4, 40 * mib), 40 * mib);
	CHECK_EQUAL(payload_share_bytes(4, 400 * mib), 64 * mib);
	CHECK_EQUAL(payload_share_bytes(64, 400 * mib), 2 * ROW_WINDOW_BYTES);
}

int main(void)
{
	test_every_piece_differs();
	test_shares();
	test_seeds_differ();
	test_reads_stay_in_the_sink();
	test_slow_write_keeps_its_data();
	test_completions_in_any_order();
	test_equal_writes_fill_the_pool();
	test_the_share_of_a_thread();
	return 0;
}
