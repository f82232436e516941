/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the watch makes of turns, rests and late rows. Times are made up. */
#include "watch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "witness.h"

static struct watch watch;
static int64_t now_ns;

static void begin(void)
{
	watch_init(&watch, NULL);
	/* What this test itself waits for a processor is no matter. */
	close(watch.schedstat_fd);
	watch.schedstat_fd = -1;
	watch_ready(&watch);
	watch_start(&watch, monotonic_ns());
	now_ns = watch.expected_ns = watch.last.at_ns = 10 * NS_PER_S;
	watch_turn(&watch, now_ns);
}

/* The cause of the only disturbance; -1: there is none, -2: several. */
static int only_cause(void)
{
	int found = -1;

	for (int cause = 0; cause < CAUSE_COUNT; cause++)
		if (watch.sums[cause].count)
			found = found == -1 && watch.sums[cause].count == 1 ? cause : -2;
	return found;
}

static void turns_in_time_are_no_disturbance(void)
{
	begin();
	for (int i = 0; i < 1000; i++)
		watch_turn(&watch, now_ns += 40000);
	for (int i = 0; i < 1000; i++) {
		watch_rest(&watch, now_ns, now_ns + 50 * NS_PER_MS, REST_SLEEPS);
		watch_turn(&watch, now_ns += 49 * NS_PER_MS);
	}
	watch_end(&watch, now_ns);
	CHECK(only_cause() == -1);
}

/* A jump within which the thread ran all the time, as this test does: by its own account nothing else was wrong. */
static void a_jump_is_a_disturbance_with_the_rows_it_made_late(void)
{
	begin();
	watch_turn(&watch, now_ns += 5 * NS_PER_MS);
	watch_late(&watch, now_ns - 4 * NS_PER_MS, now_ns);
	watch_late(&watch, now_ns - 2 * NS_PER_MS, now_ns);
	CHECK(watch_explains(&watch, 4 * NS_PER_MS));
	CHECK(!watch_explains(&watch, 40 * NS_PER_MS));
	watch_rest(&watch, now_ns, now_ns + NS_PER_MS, REST_SPINS);
	CHECK(!watch_explains(&watch, NS_PER_MS));
	watch_end(&watch, now_ns);
	CHECK(only_cause() >= 0 && only_cause() != CAUSE_OVERLOAD);
	CHECK(watch.sums[only_cause()].late_ops == 2);
	CHECK(watch.sums[only_cause()].max_late_ns == 4 * NS_PER_MS);
	CHECK(watch.sums[only_cause()].total_ns == 5 * NS_PER_MS);
}

static void a_sleep_that_is_asked_for_is_none_and_its_lateness_is(void)
{
	begin();
	watch_rest(&watch, now_ns, now_ns + 30 * NS_PER_MS, REST_SLEEPS);
	watch_turn(&watch, now_ns += 32 * NS_PER_MS);
	watch_end(&watch, now_ns);
	CHECK(only_cause() >= 0);
	CHECK(watch.sums[only_cause()].total_ns == 2 * NS_PER_MS);
}

static void late_rows_without_a_disturbance_are_too_many(void)
{
	begin();
	for (int i = 1; i <= 100; i++) {
		watch_turn(&watch, now_ns += 10000);
		watch_late(&watch, now_ns - i * 200000, now_ns);
	}
	watch_end(&watch, now_ns);
	CHECK(only_cause() == CAUSE_OVERLOAD);
	CHECK(watch.sums[CAUSE_OVERLOAD].late_ops == 100);
}

static void a_plan_that_lags_is_to_blame_for_all_its_lateness(void)
{
	begin();
	/* It was missing for 1 ms only, and comes with rows that were due long ago. */
	watch_turn(&watch, now_ns += 20 * NS_PER_MS / 1000);
	watch_plan_late(&watch, now_ns - NS_PER_MS, now_ns - 500 * NS_PER_MS, now_ns);
	watch_late(&watch, now_ns - 500 * NS_PER_MS, now_ns);
	watch_end(&watch, now_ns);
	CHECK(only_cause() == CAUSE_PLAN);
	CHECK(watch.sums[CAUSE_PLAN].total_ns == NS_PER_MS);
}

static void a_plan_that_was_missing_and_comes_in_time_is_none(void)
{
	begin();
	watch_plan_late(&watch, now_ns, now_ns + 5 * NS_PER_MS, now_ns + NS_PER_MS);
	watch_end(&watch, now_ns);
	CHECK(only_cause() == -1);
}

static void records_that_are_full_hold_it_up_until_there_is_room(void)
{
	begin();
	for (int i = 0; i < 100; i++)
		watch_held_up(&watch, PART_RECORDS, now_ns += 55000);
	watch_turn(&watch, now_ns += 1000);
	watch_end(&watch, now_ns);
	CHECK(only_cause() == CAUSE_RECORDS);
	CHECK(watch.sums[CAUSE_RECORDS].total_ns == 100 * 55000);
}

static void what_piled_up_belongs_to_what_made_it(void)
{
	begin();
	watch_held_up(&watch, PART_RECORDS, now_ns += 10 * NS_PER_MS);
	/* The queue is full of it: the thread sleeps, and is behind all the same. */
	watch_rest(&watch, now_ns, now_ns + 50 * NS_PER_MS, REST_SLEEPS_BEHIND);
	watch_turn(&watch, now_ns += NS_PER_MS);
	watch_late(&watch, now_ns - 9 * NS_PER_MS, now_ns);
	watch_end(&watch, now_ns);
	CHECK(only_cause() == CAUSE_RECORDS);
	CHECK(watch.sums[CAUSE_RECORDS].late_ops == 1);
}

static void the_longest_are_listed_and_all_are_in_the_sums(void)
{
	begin();
	for (int i = 1; i <= 200; i++) {
		watch_held_up(&watch, PART_RECORDS, now_ns += i * NS_PER_MS);
		watch_rest(&watch, now_ns, now_ns + NS_PER_MS, REST_SPINS);
	}
	watch_end(&watch, now_ns);
	CHECK(watch.sums[CAUSE_RECORDS].count == 200);
	CHECK(watch.sums[CAUSE_RECORDS].longest_ns == 200 * NS_PER_MS);
	CHECK(watch.listed_count == WATCH_LISTED);
	for (unsigned i = 0; i < watch.listed_count; i++)
		CHECK(watch.listed[i].parts_ns[PART_RECORDS] > (200 - WATCH_LISTED) * NS_PER_MS);
}

static void it_tells_of_several_threads_in_one_object(void)
{
	const struct watch *both[] = { &watch, &watch };
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	begin();
	watch_held_up(&watch, PART_RECORDS, now_ns += NS_PER_MS);
	watch_end(&watch, now_ns);
	watch_write_json(out, both, 2);
	fclose(out);
	CHECK(strstr(text, "\"records\": {\"count\": 2, \"total_ns\": 2000000, \"longest_ns\": 1000000"));
	CHECK(strstr(text, "\"thread\": 1}"));
	free(text);
}

/* From when the witness was awake last to when it learns of a stop, it may itself wait for a processor. */
static void a_stop_that_the_witness_learns_of_late_is_one(void)
{
	static struct witness witness;

	atomic_store(&witness.stops[0].from_ns, 98 * NS_PER_MS);
	atomic_store(&witness.stops[0].to_ns, 170 * NS_PER_MS);
	CHECK(!witness_continued(&witness, 100 * NS_PER_MS, 150 * NS_PER_MS));
	atomic_store(&witness.continued, 1);
	CHECK(witness_continued(&witness, 100 * NS_PER_MS, 150 * NS_PER_MS));
	CHECK(!witness_continued(&witness, 90 * NS_PER_MS, 97 * NS_PER_MS));
	CHECK(!witness_continued(&witness, 171 * NS_PER_MS, 180 * NS_PER_MS));
}

int main(void)
{
	a_stop_that_the_witness_learns_of_late_is_one();
	turns_in_time_are_no_disturbance();
	a_jump_is_a_disturbance_with_the_rows_it_made_late();
	a_sleep_that_is_asked_for_is_none_and_its_lateness_is();
	late_rows_without_a_disturbance_are_too_many();
	a_plan_that_lags_is_to_blame_for_all_its_lateness();
	a_plan_that_was_missing_and_comes_in_time_is_none();
	records_that_are_full_hold_it_up_until_there_is_room();
	what_piled_up_belongs_to_what_made_it();
	the_longest_are_listed_and_all_are_in_the_sums();
	it_tells_of_several_threads_in_one_object();
	return 0;
}
