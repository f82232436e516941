/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Stalls found from turns, rests and late rows. Times are made up. */
#include "monitor/stall_monitor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "run/clock.h"
#include "monitor/heartbeat.h"

static struct stall_monitor monitor;
static int64_t now_ns;

static void begin(void)
{
	stall_monitor_init(&monitor, NULL);
	/* Ignores the time that this test waits for a CPU. */
	close(monitor.schedstat_fd);
	monitor.schedstat_fd = -1;
	stall_monitor_ready(&monitor);
	stall_monitor_start(&monitor, monotonic_ns());
	now_ns = monitor.expected_ns = monitor.last.at_ns = 10 * NS_PER_S;
	stall_monitor_turn(&monitor, now_ns);
}

/* The cause of the only stall; -1: none, -2: several. */
static int only_cause(void)
{
	int found = -1;

	for (int cause = 0; cause < CAUSE_COUNT; cause++)
		if (monitor.sums[cause].count)
			found = found == -1 && monitor.sums[cause].count == 1 ? cause : -2;
	return found;
}

static void turns_in_time_are_no_stall(void)
{
	begin();
	for (int i = 0; i < 1000; i++)
		stall_monitor_turn(&monitor, now_ns += 40000);
	for (int i = 0; i < 1000; i++) {
		stall_monitor_rest(&monitor, now_ns, now_ns + 50 * NS_PER_MS, REST_SLEEPS);
		stall_monitor_turn(&monitor, now_ns += 49 * NS_PER_MS);
	}
	stall_monitor_end(&monitor, now_ns);
	CHECK(only_cause() == -1);
}

/* The thread of this test ran all the time of the jump. */
static void jump_is_a_stall_with_its_late_rows(void)
{
	begin();
	stall_monitor_turn(&monitor, now_ns += 5 * NS_PER_MS);
	stall_monitor_late(&monitor, now_ns - 4 * NS_PER_MS, now_ns);
	stall_monitor_late(&monitor, now_ns - 2 * NS_PER_MS, now_ns);
	CHECK(stall_monitor_explains(&monitor, 4 * NS_PER_MS));
	CHECK(!stall_monitor_explains(&monitor, 40 * NS_PER_MS));
	stall_monitor_rest(&monitor, now_ns, now_ns + NS_PER_MS, REST_SPINS);
	CHECK(!stall_monitor_explains(&monitor, NS_PER_MS));
	stall_monitor_end(&monitor, now_ns);
	CHECK(only_cause() >= 0 && only_cause() != CAUSE_OVERLOAD);
	CHECK(monitor.sums[only_cause()].late_ops == 2);
	CHECK(monitor.sums[only_cause()].max_late_ns == 4 * NS_PER_MS);
	CHECK(monitor.sums[only_cause()].total_ns == 5 * NS_PER_MS);
}

static void late_wakeup_is_a_stall_and_planned_sleep_is_none(void)
{
	begin();
	stall_monitor_rest(&monitor, now_ns, now_ns + 30 * NS_PER_MS, REST_SLEEPS);
	stall_monitor_turn(&monitor, now_ns += 32 * NS_PER_MS);
	stall_monitor_end(&monitor, now_ns);
	CHECK(only_cause() >= 0);
	CHECK(monitor.sums[only_cause()].total_ns == 2 * NS_PER_MS);
}

static void late_rows_without_a_stall_are_overload(void)
{
	begin();
	for (int i = 1; i <= 100; i++) {
		stall_monitor_turn(&monitor, now_ns += 10000);
		stall_monitor_late(&monitor, now_ns - i * 200000, now_ns);
	}
	stall_monitor_end(&monitor, now_ns);
	CHECK(only_cause() == CAUSE_OVERLOAD);
	CHECK(monitor.sums[CAUSE_OVERLOAD].late_ops == 100);
}

static void late_plan_explains_all_its_lateness(void)
{
	begin();
	/* The plan was missing for 1 ms, and then its rows were long overdue. */
	stall_monitor_turn(&monitor, now_ns += 20 * NS_PER_MS / 1000);
	stall_monitor_plan_late(&monitor, now_ns - NS_PER_MS, now_ns - 500 * NS_PER_MS, now_ns);
	stall_monitor_late(&monitor, now_ns - 500 * NS_PER_MS, now_ns);
	stall_monitor_end(&monitor, now_ns);
	CHECK(only_cause() == CAUSE_PLAN);
	CHECK(monitor.sums[CAUSE_PLAN].total_ns == NS_PER_MS);
}

static void plan_that_arrives_in_time_is_no_stall(void)
{
	begin();
	stall_monitor_plan_late(&monitor, now_ns, now_ns + 5 * NS_PER_MS, now_ns + NS_PER_MS);
	stall_monitor_end(&monitor, now_ns);
	CHECK(only_cause() == -1);
}

static void full_records_are_a_stall_until_there_is_room(void)
{
	begin();
	for (int i = 0; i < 100; i++)
		stall_monitor_delay(&monitor, PART_RECORDS, now_ns += 55000);
	stall_monitor_turn(&monitor, now_ns += 1000);
	stall_monitor_end(&monitor, now_ns);
	CHECK(only_cause() == CAUSE_RECORDS);
	CHECK(monitor.sums[CAUSE_RECORDS].total_ns == 100 * 55000);
}

static void backlog_belongs_to_its_stall(void)
{
	begin();
	stall_monitor_delay(&monitor, PART_RECORDS, now_ns += 10 * NS_PER_MS);
	/* The thread sleeps with a full queue, and is still behind. */
	stall_monitor_rest(&monitor, now_ns, now_ns + 50 * NS_PER_MS, REST_SLEEPS_BEHIND);
	stall_monitor_turn(&monitor, now_ns += NS_PER_MS);
	stall_monitor_late(&monitor, now_ns - 9 * NS_PER_MS, now_ns);
	stall_monitor_end(&monitor, now_ns);
	CHECK(only_cause() == CAUSE_RECORDS);
	CHECK(monitor.sums[CAUSE_RECORDS].late_ops == 1);
}

static void longest_stalls_are_listed_and_all_are_summed(void)
{
	begin();
	for (int i = 1; i <= 200; i++) {
		stall_monitor_delay(&monitor, PART_RECORDS, now_ns += i * NS_PER_MS);
		stall_monitor_rest(&monitor, now_ns, now_ns + NS_PER_MS, REST_SPINS);
	}
	stall_monitor_end(&monitor, now_ns);
	CHECK(monitor.sums[CAUSE_RECORDS].count == 200);
	CHECK(monitor.sums[CAUSE_RECORDS].longest_ns == 200 * NS_PER_MS);
	CHECK(monitor.listed_count == STALLS_LISTED);
	for (unsigned i = 0; i < monitor.listed_count; i++)
		CHECK(monitor.listed[i].parts_ns[PART_RECORDS] > (200 - STALLS_LISTED) * NS_PER_MS);
}

static void several_threads_give_one_object(void)
{
	const struct stall_monitor *both[] = { &monitor, &monitor };
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	begin();
	stall_monitor_delay(&monitor, PART_RECORDS, now_ns += NS_PER_MS);
	stall_monitor_end(&monitor, now_ns);
	stall_monitor_write_json(out, both, 2);
	fclose(out);
	CHECK(strstr(text, "\"records\": {\"count\": 2, \"total_ns\": 2000000, \"longest_ns\": 1000000"));
	CHECK(strstr(text, "\"thread\": 1}"));
	free(text);
}

/* A signal stops a thread where it leaves the kernel, and the reading itself is made of system calls. */
static void stop_within_a_reading_is_no_running(void)
{
	int64_t reading_ns;

	begin();
	reading_ns = now_ns += 2 * ACCOUNT_BUSY_NS;
	monitor.expected_ns = reading_ns;
	monitor.start_ns = monotonic_ns() - reading_ns;
	monitor.last.at_ns = reading_ns - 2 * ACCOUNT_BUSY_NS;
	monitor.slept_ns = 2 * ACCOUNT_BUSY_NS;
	sleep_ns(20 * NS_PER_MS);
	stall_monitor_turn(&monitor, reading_ns);
	CHECK(only_cause() == -1 && !monitor.open);
	stall_monitor_turn(&monitor, now_ns += 20 * NS_PER_MS);
	CHECK(monitor.open && monitor.current.parts_ns[PART_BLOCKED] == 20 * NS_PER_MS);
	stall_monitor_end(&monitor, now_ns);
	CHECK(only_cause() == CAUSE_BLOCKED);
}

/* After a stop the heartbeat may wait for a CPU before it handles SIGCONT. */
static void stop_with_a_late_heartbeat_is_a_stop(void)
{
	static struct heartbeat heartbeat;

	atomic_store(&heartbeat.stops[0].from_ns, 98 * NS_PER_MS);
	atomic_store(&heartbeat.stops[0].to_ns, 170 * NS_PER_MS);
	CHECK(!heartbeat_continued(&heartbeat, 100 * NS_PER_MS, 150 * NS_PER_MS));
	atomic_store(&heartbeat.continued, 1);
	CHECK(heartbeat_continued(&heartbeat, 100 * NS_PER_MS, 150 * NS_PER_MS));
	CHECK(!heartbeat_continued(&heartbeat, 90 * NS_PER_MS, 97 * NS_PER_MS));
	CHECK(!heartbeat_continued(&heartbeat, 171 * NS_PER_MS, 180 * NS_PER_MS));
}

int main(void)
{
	stop_with_a_late_heartbeat_is_a_stop();
	turns_in_time_are_no_stall();
	jump_is_a_stall_with_its_late_rows();
	late_wakeup_is_a_stall_and_planned_sleep_is_none();
	late_rows_without_a_stall_are_overload();
	late_plan_explains_all_its_lateness();
	plan_that_arrives_in_time_is_no_stall();
	full_records_are_a_stall_until_there_is_room();
	backlog_belongs_to_its_stall();
	longest_stalls_are_listed_and_all_are_summed();
	several_threads_give_one_object();
	stop_within_a_reading_is_no_running();
	return 0;
}
