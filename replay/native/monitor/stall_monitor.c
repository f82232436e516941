/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "stall_monitor.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "run/clock.h"
#include "schedstat.h"

/* How long to wait for the heartbeat to wake up after a stall; its interval is a tenth of that. */
#define HEARTBEAT_TIMEOUT_NS (50 * NS_PER_MS)

static const char *const cause_names[CAUSE_COUNT] = {
	[CAUSE_PREEMPTED] = "preempted", [CAUSE_STOPPED] = "stopped", [CAUSE_MACHINE] = "machine",
	[CAUSE_PAGING] = "paging",	 [CAUSE_WAKEUP] = "wakeup",   [CAUSE_BLOCKED] = "blocked",
	[CAUSE_KERNEL] = "kernel",	 [CAUSE_PLAN] = "plan",	      [CAUSE_RECORDS] = "records",
	[CAUSE_OVERLOAD] = "overload",
};

static int64_t run_time_ns(const struct stall_monitor *monitor)
{
	return monotonic_ns() - monitor->start_ns;
}

static void read_account(struct stall_monitor *monitor, struct thread_account *reading)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	reading->waited_ns = schedstat_waited_ns(monitor->schedstat_fd, monitor->last.waited_ns);
	reading->major_faults = usage.ru_majflt;
	reading->involuntary_switches = usage.ru_nivcsw;
	reading->voluntary_switches = usage.ru_nvcsw;
	reading->ran_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
	reading->at_ns = run_time_ns(monitor);
}

void stall_monitor_init(struct stall_monitor *monitor, struct heartbeat *heartbeat)
{
	memset(monitor, 0, sizeof(*monitor)); /* touches the pages */
	monitor->heartbeat = heartbeat;
	monitor->stalled_ns = INT64_MAX;
	monitor->schedstat_fd = schedstat_open();
}

void stall_monitor_deinit(struct stall_monitor *monitor)
{
	if (monitor->schedstat_fd >= 0)
		close(monitor->schedstat_fd);
}

void stall_monitor_ready(struct stall_monitor *monitor)
{
	read_account(monitor, &monitor->last);
}

void stall_monitor_start(struct stall_monitor *monitor, int64_t start_ns)
{
	monitor->start_ns = start_ns;
	monitor->last.at_ns -= start_ns;
	monitor->first = monitor->last;
	monitor->expected_ns = 0;
}

static struct stall *open_stall(struct stall_monitor *monitor, int64_t at_ns)
{
	if (!monitor->open) {
		monitor->open = true;
		memset(&monitor->current, 0, sizeof(monitor->current));
		monitor->current.at_ns = monitor->current.until_ns = at_ns;
	}
	return &monitor->current;
}

static void stalled_since(struct stall_monitor *monitor, int64_t at_ns)
{
	if (at_ns < monitor->stalled_ns)
		monitor->stalled_ns = at_ns;
}

/* Divides delay_ns, the unplanned part of the time since the last reading, into waiting, blocked and running. */
static void attribute(struct stall_monitor *monitor, int64_t delay_ns, int64_t at_ns, bool resting)
{
	struct thread_account now;
	struct stall *current;
	int64_t waited_ns, blocked_ns;

	read_account(monitor, &now);
	waited_ns = now.waited_ns - monitor->last.waited_ns;
	blocked_ns = now.at_ns - monitor->last.at_ns - (now.ran_ns - monitor->last.ran_ns) - waited_ns - monitor->slept_ns;
	/* A wait for a CPU within a sleep that ended in time still delayed completions. */
	if (delay_ns > 0 || waited_ns > STALL_REPORT_NS) {
		current = open_stall(monitor, at_ns);
		if (delay_ns < waited_ns && !delay_ns)
			delay_ns = waited_ns;
		if (waited_ns > delay_ns)
			waited_ns = delay_ns;
		blocked_ns = blocked_ns < 0 ? 0 : blocked_ns;
		if (blocked_ns > delay_ns - waited_ns)
			blocked_ns = delay_ns - waited_ns;
		current->parts_ns[PART_WAITED] += waited_ns;
		current->parts_ns[PART_BLOCKED] += blocked_ns;
		current->parts_ns[PART_RAN] += delay_ns - waited_ns - blocked_ns;
		current->major_faults += now.major_faults - monitor->last.major_faults;
		current->resting |= resting;
		current->stolen |= blocked_ns > 0 && now.voluntary_switches == monitor->last.voluntary_switches;
		current->until_ns = now.at_ns;
		monitor->kept = false;
	} else {
		/* What stopped the thread within this reading makes it late only now: the next reading is to see it too. */
		monitor->kept = !monitor->kept && blocked_ns > STALL_REPORT_NS;
	}
	if (monitor->kept)
		return;
	monitor->last = now;
	monitor->slept_ns = 0;
}

void stall_monitor_jump(struct stall_monitor *monitor, int64_t now_ns)
{
	bool slept = monitor->resting && monitor->sleeping;
	int64_t late_ns = now_ns - monitor->expected_ns;

	if (slept)
		monitor->slept_ns += (late_ns < 0 ? now_ns : monitor->expected_ns) - monitor->rest_ns;
	monitor->resting = false;
	monitor->woken = slept && late_ns <= STALL_JUMP_NS && now_ns - monitor->rest_ns > STALL_JUMP_NS;
	if (late_ns > STALL_JUMP_NS) {
		stalled_since(monitor, monitor->expected_ns);
		attribute(monitor, late_ns, monitor->expected_ns, slept);
		return;
	}
	/* With deadlines a reading follows the wake-up, after the completions are stamped. */
	if (monitor->woken && monitor->reads_wakeups)
		return;
	if (now_ns - monitor->last.at_ns > ACCOUNT_BUSY_NS)
		attribute(monitor, 0, now_ns, slept);
}

void stall_monitor_woken(struct stall_monitor *monitor, int64_t now_ns)
{
	int64_t waited_ns;

	monitor->woken = false;
	if (!monitor->reads_wakeups)
		return;
	waited_ns = schedstat_waited_ns(monitor->schedstat_fd, monitor->last.waited_ns) - monitor->last.waited_ns;
	if (waited_ns > STALL_JUMP_NS) {
		stalled_since(monitor, now_ns - waited_ns);
		attribute(monitor, 0, now_ns, true);
	} else {
		monitor->last.waited_ns += waited_ns;
	}
}

void stall_monitor_delay(struct stall_monitor *monitor, enum stall_part part, int64_t now_ns)
{
	struct stall *current;

	if (monitor->off)
		return;
	current = open_stall(monitor, monitor->expected_ns);
	stalled_since(monitor, monitor->expected_ns);
	current->parts_ns[part] += now_ns - monitor->expected_ns;
	current->until_ns = now_ns;
	monitor->slept_ns += now_ns - monitor->expected_ns;
	monitor->expected_ns = now_ns;
}

void stall_monitor_plan_late(struct stall_monitor *monitor, int64_t starved_ns, int64_t due_ns, int64_t now_ns)
{
	int64_t since_ns = due_ns > starved_ns ? due_ns : starved_ns;
	struct stall *current;

	if (monitor->off || now_ns <= since_ns)
		return;
	current = open_stall(monitor, since_ns);
	current->parts_ns[PART_PLAN] += now_ns - since_ns;
	current->until_ns = now_ns;
	/* The lateness of a plan includes its earlier gaps. */
	if (due_ns >= 0 && now_ns - due_ns > current->plan_late_ns)
		current->plan_late_ns = now_ns - due_ns;
}

void stall_monitor_late(struct stall_monitor *monitor, int64_t due_ns, int64_t submit_ns)
{
	struct stall *current;

	if (monitor->off)
		return;
	current = open_stall(monitor, due_ns);
	current->late_ops++;
	if (submit_ns - due_ns > current->max_late_ns)
		current->max_late_ns = submit_ns - due_ns;
	current->until_ns = submit_ns;
}

static int64_t stall_ns(const struct stall *stall)
{
	int64_t sum_ns = 0;

	for (int part = 0; part < PART_COUNT; part++)
		sum_ns += stall->parts_ns[part];
	return sum_ns;
}

static enum stall_part largest_part(const struct stall *stall)
{
	enum stall_part largest = 0;

	for (int part = 1; part < PART_COUNT; part++)
		if (stall->parts_ns[part] > stall->parts_ns[largest])
			largest = part;
	return largest;
}

/* Whether the heartbeat missed most of it too. */
static bool machine_stalled(const struct stall_monitor *monitor, const struct stall *stall, int64_t part_ns)
{
	if (!monitor->heartbeat)
		return false;
	return heartbeat_missed_ns(monitor->heartbeat, monitor->start_ns + stall->at_ns, monitor->start_ns + stall->until_ns) >
	       part_ns / 2;
}

static enum stall_cause cause_of(const struct stall_monitor *monitor, const struct stall *stall)
{
	enum stall_part part = largest_part(stall);
	int64_t part_ns = stall->parts_ns[part];

	/* The rows are later than the stall explains. */
	if (stall_ns(stall) < stall->max_late_ns / 2 && stall->plan_late_ns < stall->max_late_ns / 2)
		return CAUSE_OVERLOAD;
	switch (part) {
	case PART_PLAN:
		return CAUSE_PLAN;
	case PART_RECORDS:
		return CAUSE_RECORDS;
	case PART_WAITED:
		return CAUSE_PREEMPTED;
	case PART_BLOCKED:
		if (monitor->heartbeat && heartbeat_continued(monitor->heartbeat, monitor->start_ns + stall->at_ns,
							monitor->start_ns + stall->until_ns))
			return CAUSE_STOPPED;
		if (stall->stolen)
			return CAUSE_MACHINE;
		if (stall->major_faults)
			return CAUSE_PAGING;
		if (machine_stalled(monitor, stall, part_ns))
			return CAUSE_MACHINE;
		return stall->resting ? CAUSE_WAKEUP : CAUSE_BLOCKED;
	default:
		if (machine_stalled(monitor, stall, part_ns))
			return CAUSE_MACHINE;
		return stall->major_faults ? CAUSE_PAGING : CAUSE_KERNEL;
	}
}

/* Keeps the longest stalls. */
static void list_stall(struct stall_monitor *monitor, const struct stall *stall)
{
	unsigned shortest = 0;

	if (monitor->listed_count < STALLS_LISTED) {
		monitor->listed[monitor->listed_count++] = *stall;
		return;
	}
	for (unsigned i = 1; i < STALLS_LISTED; i++)
		if (stall_ns(&monitor->listed[i]) < stall_ns(&monitor->listed[shortest]))
			shortest = i;
	if (stall_ns(&monitor->listed[shortest]) < stall_ns(stall))
		monitor->listed[shortest] = *stall;
}

static void add(struct stall_sum *sum, const struct stall_sum *other)
{
	sum->count += other->count;
	sum->total_ns += other->total_ns;
	sum->late_ops += other->late_ops;
	if (other->longest_ns > sum->longest_ns)
		sum->longest_ns = other->longest_ns;
	if (other->max_late_ns > sum->max_late_ns)
		sum->max_late_ns = other->max_late_ns;
}

static void close_stall(struct stall_monitor *monitor)
{
	struct stall *stall = &monitor->current;
	int64_t took_ns = stall_ns(stall);

	monitor->open = false;
	if (took_ns < STALL_REPORT_NS && !stall->late_ops)
		return;
	stall->cause = cause_of(monitor, stall);
	add(&monitor->sums[stall->cause],
	    &(struct stall_sum){ 1, took_ns, took_ns, stall->late_ops, stall->max_late_ns });
	list_stall(monitor, stall);
}

/* Whether the heartbeat has not woken up since the open stall. */
static bool heartbeat_is_behind(const struct stall_monitor *monitor, int64_t now_ns)
{
	const struct stall *stall = &monitor->current;
	enum stall_part part = largest_part(stall);

	return monitor->heartbeat && (part == PART_BLOCKED || part == PART_RAN) && stall->parts_ns[part] >= NS_PER_MS &&
	       atomic_load(&monitor->heartbeat->beat_ns) < monitor->start_ns + stall->until_ns &&
	       now_ns - stall->until_ns < HEARTBEAT_TIMEOUT_NS;
}

void stall_monitor_review(struct stall_monitor *monitor, int64_t now_ns, bool behind)
{
	if (monitor->open && !behind && !heartbeat_is_behind(monitor, now_ns))
		close_stall(monitor);
	if (now_ns - monitor->last.at_ns > ACCOUNT_REST_NS)
		attribute(monitor, 0, now_ns, false);
}

void stall_monitor_end(struct stall_monitor *monitor, int64_t now_ns)
{
	if (monitor->off)
		return;
	while (monitor->open && heartbeat_is_behind(monitor, now_ns)) {
		sleep_ns(NS_PER_MS);
		now_ns = run_time_ns(monitor);
	}
	if (monitor->open)
		close_stall(monitor);
	read_account(monitor, &monitor->last);
}

static void write_causes(FILE *out, const struct stall_monitor *const *monitors, unsigned count)
{
	const char *comma = "";

	fputs("\"causes\": {", out);
	for (int cause = 0; cause < CAUSE_COUNT; cause++) {
		struct stall_sum sum = { 0 };

		for (unsigned i = 0; i < count; i++)
			add(&sum, &monitors[i]->sums[cause]);
		if (!sum.count)
			continue;
		fprintf(out,
			"%s\"%s\": {\"count\": %lld, \"total_ns\": %lld, \"longest_ns\": %lld, \"late_ops\": %lld, "
			"\"max_late_ns\": %lld}",
			comma, cause_names[cause], (long long)sum.count, (long long)sum.total_ns,
			(long long)sum.longest_ns, (long long)sum.late_ops, (long long)sum.max_late_ns);
		comma = ", ";
	}
	fputs("}", out);
}

static void write_listed(FILE *out, const struct stall_monitor *const *monitors, unsigned count)
{
	const char *comma = "";

	fputs("\"stalls\": [", out);
	for (unsigned i = 0; i < count; i++) {
		for (unsigned n = 0; n < monitors[i]->listed_count; n++) {
			const struct stall *stall = &monitors[i]->listed[n];

			fprintf(out,
				"%s{\"at_ns\": %lld, \"duration_ns\": %lld, \"cause\": \"%s\", \"late_ops\": %lld, "
				"\"max_late_ns\": %lld, \"thread\": %u}",
				comma, (long long)stall->at_ns, (long long)stall_ns(stall), cause_names[stall->cause],
				(long long)stall->late_ops, (long long)stall->max_late_ns, i);
			comma = ", ";
		}
	}
	fputs("]", out);
}

void stall_monitor_write_json(FILE *out, const struct stall_monitor *const *monitors, unsigned count)
{
	const struct heartbeat *heartbeat = count ? monitors[0]->heartbeat : NULL;
	int64_t ran_ns = 0, waited_ns = 0, faults = 0, forced = 0;
	bool accounted = true;

	for (unsigned i = 0; i < count; i++) {
		const struct stall_monitor *monitor = monitors[i];

		ran_ns += monitor->last.ran_ns - monitor->first.ran_ns;
		waited_ns += monitor->last.waited_ns - monitor->first.waited_ns;
		faults += monitor->last.major_faults - monitor->first.major_faults;
		forced += monitor->last.involuntary_switches - monitor->first.involuntary_switches;
		accounted = accounted && monitor->schedstat_fd >= 0;
	}
	fprintf(out, "{\"ran_ns\": %lld, \"waited_ns\": ", (long long)ran_ns);
	/* Unknown on a kernel without CONFIG_SCHED_INFO. */
	if (accounted)
		fprintf(out, "%lld", (long long)waited_ns);
	else
		fputs("null", out);
	fprintf(out, ", \"preemptions\": %lld, \"major_faults\": %lld, \"stops\": %lld, \"suspended_ns\": %lld, ",
		(long long)forced, (long long)faults, heartbeat ? (long long)atomic_load(&heartbeat->continued) : 0,
		heartbeat ? (long long)atomic_load(&heartbeat->suspended_ns) : 0);
	write_causes(out, monitors, count);
	fputs(", ", out);
	write_listed(out, monitors, count);
	fputs("}", out);
}
