/* SPDX-License-Identifier: GPL-2.0-or-later */
/* From events to I/Os, where no file can bring it about: what is given up, and completions that go missing. */
#include "pair.h"
#include "check.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct rows rows;
static struct pairing pairing;

static void begin(void)
{
	FILE *file = tmpfile();

	CHECK(file != NULL);
	CHECK_EQUAL(rows_init(&rows, fileno(file), -1), 0);
	CHECK_EQUAL(pairing_init(&pairing, &rows), 0);
	pairing.any_device = true;
}

static void take(enum event_action action, uint64_t time_ns, uint64_t sector, uint32_t pid)
{
	const struct blk_event event = {
		.action = (uint16_t)action, .time_ns = time_ns, .sector = sector, .bytes = 4096, .category = CATEGORY_READ,
		.pid = pid, .device = 8u << 20,
	};

	CHECK_EQUAL(pairing_take(&pairing, &event), 0);
}

static void end(void)
{
	pairing_deinit(&pairing);
	close(rows.file.fd);
	rows_deinit(&rows);
}

static void test_a_silent_loss_costs_one_latency_only(void)
{
	begin();
	pairing.silent_losses = true;
	take(ACTION_ISSUE, 100, 8, 1); /* its completion is missing */
	take(ACTION_ISSUE, 5000000000, 8, 2);
	take(ACTION_COMPLETE, 5000000100, 8, 0);
	CHECK_EQUAL(rows.count, 1);
	pairing_finish(&pairing);
	CHECK_EQUAL(pairing.counts.unseen, 1);
	CHECK_EQUAL(pairing.counts.in_flight_at_end, 0);
	CHECK_EQUAL(rows.ios[OP_READ], 2);
	end();
}

static void test_a_late_completion_without_an_issue_is_not_one_from_before_the_start(void)
{
	begin();
	take(ACTION_COMPLETE, 1000, 8, 0);
	take(ACTION_COMPLETE, 1000 + 31000000000ull, 16, 0);
	CHECK_EQUAL(pairing.counts.in_flight_at_start, 1);
	CHECK_EQUAL(pairing.counts.unmatched, 1);
	end();
}

static void test_what_is_not_wanted_makes_no_row(void)
{
	begin();
	pairing.any_device = false;
	take(ACTION_ISSUE, 100, 8, 1);
	take(ACTION_COMPLETE, 200, 8, 1);
	CHECK_EQUAL(rows.count, 0);
	CHECK_EQUAL(pairing.counts.not_wanted, 2);
	end();
}

static void test_a_full_table_gives_up_its_oldest(void)
{
	struct table table;
	struct pending entry = { 0 };

	CHECK_EQUAL(table_init(&table, 3), 0);
	for (entry.submit_ns = 1; entry.submit_ns <= 4; entry.submit_ns++) {
		if (table.count >= table.room)
			table_remove(&table, table.oldest);
		CHECK(table_add(&table, &entry) != NULL);
	}
	CHECK_EQUAL(table.count, 3);
	CHECK_EQUAL(table_find(&table, 0, 0, 0)->submit_ns, 2);
	CHECK_EQUAL(table_find_newest(&table, 0, 0, 0)->submit_ns, 4);
	CHECK_EQUAL(table_find_next(table_find(&table, 0, 0, 0))->submit_ns, 3);
	CHECK(table_find(&table, 0, 1, 0) == NULL);
	table_deinit(&table);
}

int main(void)
{
	test_a_silent_loss_costs_one_latency_only();
	test_a_late_completion_without_an_issue_is_not_one_from_before_the_start();
	test_what_is_not_wanted_makes_no_row();
	test_a_full_table_gives_up_its_oldest();
	return 0;
}
