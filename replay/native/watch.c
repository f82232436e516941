/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "watch.h"

#include <string.h>
#include <sys/resource.h>

#include "clock.h"
#include "schedstat.h"

/* A witness that has not been awake since the end of a stop knows nothing of it yet; it naps for a tenth of that. */
#define WITNESS_PATIENCE_NS (50 * NS_PER_MS)

static const char *const cause_names[CAUSE_COUNT] = {
	[CAUSE_PREEMPTED] = "preempted", [CAUSE_STOPPED] = "stopped", [CAUSE_MACHINE] = "machine",
	[CAUSE_PAGING] = "paging",	 [CAUSE_WAKEUP] = "wakeup",   [CAUSE_BLOCKED] = "blocked",
	[CAUSE_KERNEL] = "kernel",	 [CAUSE_PLAN] = "plan",	      [CAUSE_RECORDS] = "records",
	[CAUSE_OVERLOAD] = "overload",
};

static int64_t run_time_ns(const struct watch *watch)
{
	return monotonic_ns() - watch->start_ns;
}

static void read_account(struct watch *watch, struct watch_reading *reading)
{
	struct schedstat stat = { watch->last.waited_ns };
	struct rusage usage;

	schedstat_read(watch->schedstat_fd, &stat);
	getrusage(RUSAGE_THREAD, &usage);
	reading->waited_ns = stat.waited_ns;
	reading->major_faults = usage.ru_majflt;
	reading->switches_forced = usage.ru_nivcsw;
	reading->switches_own = usage.ru_nvcsw;
	reading->ran_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
	reading->at_ns = run_time_ns(watch);
}

void watch_init(struct watch *watch, struct witness *witness)
{
	memset(watch, 0, sizeof(*watch)); /* touched */
	watch->witness = witness;
	watch->schedstat_fd = schedstat_open();
}

void watch_ready(struct watch *watch)
{
	read_account(watch, &watch->last);
}

void watch_start(struct watch *watch, int64_t start_ns)
{
	watch->start_ns = start_ns;
	watch->last.at_ns -= start_ns;
	watch->first = watch->last;
	watch->expected_ns = 0;
}

static struct disturbance *opened(struct watch *watch, int64_t at_ns)
{
	if (!watch->open) {
		watch->open = true;
		memset(&watch->current, 0, sizeof(watch->current));
		watch->current.at_ns = watch->current.until_ns = at_ns;
	}
	return &watch->current;
}

/*
 * The account since the last reading, of which the last held_up_ns were not
 * meant: how much of these the thread waited, was blocked, ran.
 */
static void share_out(struct watch *watch, int64_t held_up_ns, int64_t at_ns, bool resting)
{
	struct watch_reading now;
	struct disturbance *current;
	int64_t waited_ns, blocked_ns;

	read_account(watch, &now);
	waited_ns = now.waited_ns - watch->last.waited_ns;
	blocked_ns = now.at_ns - watch->last.at_ns - (now.ran_ns - watch->last.ran_ns) - waited_ns - watch->slept_ns;
	/* A wait that ended a sleep in time, by the time asked for, still held back what was to be seen then. */
	if (held_up_ns > 0 || waited_ns > WATCH_TOLD_NS) {
		current = opened(watch, at_ns);
		if (held_up_ns < waited_ns && !held_up_ns)
			held_up_ns = waited_ns;
		if (waited_ns > held_up_ns)
			waited_ns = held_up_ns;
		blocked_ns = blocked_ns < 0 ? 0 : blocked_ns;
		if (blocked_ns > held_up_ns - waited_ns)
			blocked_ns = held_up_ns - waited_ns;
		current->parts_ns[PART_WAITED] += waited_ns;
		current->parts_ns[PART_BLOCKED] += blocked_ns;
		current->parts_ns[PART_RAN] += held_up_ns - waited_ns - blocked_ns;
		current->major_faults += now.major_faults - watch->last.major_faults;
		current->resting |= resting;
		current->taken |= blocked_ns > 0 && now.switches_own == watch->last.switches_own;
		current->until_ns = now.at_ns;
	}
	watch->last = now;
	watch->slept_ns = 0;
}

void watch_jumped(struct watch *watch, int64_t now_ns)
{
	bool slept = watch->resting && watch->sleeping;
	int64_t late_ns = now_ns - watch->expected_ns;

	if (slept)
		watch->slept_ns += (late_ns < 0 ? now_ns : watch->expected_ns) - watch->rest_ns;
	watch->resting = false;
	if (late_ns > WATCH_JUMP_NS)
		share_out(watch, late_ns, watch->expected_ns, slept);
	else if (now_ns - watch->last.at_ns > WATCH_READ_BUSY_NS)
		share_out(watch, 0, now_ns, slept);
}

void watch_held_up(struct watch *watch, enum watch_part part, int64_t now_ns)
{
	struct disturbance *current;

	if (watch->off)
		return;
	current = opened(watch, watch->expected_ns);
	current->parts_ns[part] += now_ns - watch->expected_ns;
	current->until_ns = now_ns;
	watch->slept_ns += now_ns - watch->expected_ns;
	watch->expected_ns = now_ns;
}

void watch_plan_late(struct watch *watch, int64_t starved_ns, int64_t due_ns, int64_t now_ns)
{
	int64_t since_ns = due_ns > starved_ns ? due_ns : starved_ns;
	struct disturbance *current;

	if (watch->off || now_ns <= since_ns)
		return;
	current = opened(watch, since_ns);
	current->parts_ns[PART_PLAN] += now_ns - since_ns;
	current->until_ns = now_ns;
	/* A plan that lags is late by all its earlier gaps too. */
	if (due_ns >= 0 && now_ns - due_ns > current->plan_late_ns)
		current->plan_late_ns = now_ns - due_ns;
}

void watch_late(struct watch *watch, int64_t due_ns, int64_t submit_ns)
{
	struct disturbance *current;

	if (watch->off)
		return;
	current = opened(watch, due_ns);
	current->late_ops++;
	if (submit_ns - due_ns > current->max_late_ns)
		current->max_late_ns = submit_ns - due_ns;
	current->until_ns = submit_ns;
}

static int64_t parts_sum_ns(const struct disturbance *one)
{
	int64_t sum_ns = 0;

	for (int part = 0; part < PART_COUNT; part++)
		sum_ns += one->parts_ns[part];
	return sum_ns;
}

static enum watch_part largest_part(const struct disturbance *one)
{
	enum watch_part largest = 0;

	for (int part = 1; part < PART_COUNT; part++)
		if (one->parts_ns[part] > one->parts_ns[largest])
			largest = part;
	return largest;
}

/* Whether the witness did not live through most of it either. */
static bool everything_stood_still(const struct watch *watch, const struct disturbance *one, int64_t part_ns)
{
	if (!watch->witness)
		return false;
	return witness_missed_ns(watch->witness, watch->start_ns + one->at_ns, watch->start_ns + one->until_ns) >
	       part_ns / 2;
}

static enum watch_cause cause_of(const struct watch *watch, const struct disturbance *one)
{
	enum watch_part part = largest_part(one);
	int64_t part_ns = one->parts_ns[part];

	/* Rows later than all that was seen can account for: there was too much to issue. */
	if (parts_sum_ns(one) < one->max_late_ns / 2 && one->plan_late_ns < one->max_late_ns / 2)
		return CAUSE_OVERLOAD;
	switch (part) {
	case PART_PLAN:
		return CAUSE_PLAN;
	case PART_RECORDS:
		return CAUSE_RECORDS;
	case PART_WAITED:
		return CAUSE_PREEMPTED;
	case PART_BLOCKED:
		if (watch->witness && witness_continued(watch->witness, watch->start_ns + one->at_ns,
							watch->start_ns + one->until_ns))
			return CAUSE_STOPPED;
		if (one->taken)
			return CAUSE_MACHINE;
		if (one->major_faults)
			return CAUSE_PAGING;
		if (everything_stood_still(watch, one, part_ns))
			return CAUSE_MACHINE;
		return one->resting ? CAUSE_WAKEUP : CAUSE_BLOCKED;
	default:
		if (everything_stood_still(watch, one, part_ns))
			return CAUSE_MACHINE;
		return one->major_faults ? CAUSE_PAGING : CAUSE_KERNEL;
	}
}

/* The longest are kept. */
static void list(struct watch *watch, const struct disturbance *one)
{
	unsigned place = 0;

	if (watch->listed_count < WATCH_LISTED) {
		watch->listed[watch->listed_count++] = *one;
		return;
	}
	for (unsigned i = 1; i < WATCH_LISTED; i++)
		if (parts_sum_ns(&watch->listed[i]) < parts_sum_ns(&watch->listed[place]))
			place = i;
	if (parts_sum_ns(&watch->listed[place]) < parts_sum_ns(one))
		watch->listed[place] = *one;
}

static void close_disturbance(struct watch *watch)
{
	struct disturbance *one = &watch->current;
	int64_t took_ns = parts_sum_ns(one);
	struct watch_sum *sum;

	watch->open = false;
	if (took_ns < WATCH_TOLD_NS && !one->late_ops)
		return;
	one->cause = cause_of(watch, one);
	sum = &watch->sums[one->cause];
	sum->count++;
	sum->total_ns += took_ns;
	sum->longest_ns = took_ns > sum->longest_ns ? took_ns : sum->longest_ns;
	sum->late_ops += one->late_ops;
	sum->max_late_ns = one->max_late_ns > sum->max_late_ns ? one->max_late_ns : sum->max_late_ns;
	list(watch, one);
}

/* Whether the witness may still say more about what is open: it wakes up some milliseconds after a stop. */
static bool witness_is_behind(const struct watch *watch, int64_t now_ns)
{
	const struct disturbance *one = &watch->current;
	enum watch_part part = largest_part(one);

	return watch->witness && (part == PART_BLOCKED || part == PART_RAN) && one->parts_ns[part] >= NS_PER_MS &&
	       atomic_load(&watch->witness->beat_ns) < watch->start_ns + one->until_ns &&
	       now_ns - one->until_ns < WITNESS_PATIENCE_NS;
}

void watch_look_round(struct watch *watch, int64_t now_ns, bool behind)
{
	if (watch->open && !behind && !witness_is_behind(watch, now_ns))
		close_disturbance(watch);
	if (now_ns - watch->last.at_ns > WATCH_READ_REST_NS)
		share_out(watch, 0, now_ns, false);
}

void watch_end(struct watch *watch, int64_t now_ns)
{
	if (watch->off)
		return;
	while (watch->open && witness_is_behind(watch, now_ns)) {
		sleep_ns(NS_PER_MS);
		now_ns = run_time_ns(watch);
	}
	if (watch->open)
		close_disturbance(watch);
	read_account(watch, &watch->last);
}

static void add(struct watch_sum *sum, const struct watch_sum *other)
{
	sum->count += other->count;
	sum->total_ns += other->total_ns;
	sum->late_ops += other->late_ops;
	if (other->longest_ns > sum->longest_ns)
		sum->longest_ns = other->longest_ns;
	if (other->max_late_ns > sum->max_late_ns)
		sum->max_late_ns = other->max_late_ns;
}

static void write_causes(FILE *out, const struct watch *const *watches, unsigned count)
{
	const char *comma = "";

	fputs("\"causes\": {", out);
	for (int cause = 0; cause < CAUSE_COUNT; cause++) {
		struct watch_sum sum = { 0 };

		for (unsigned i = 0; i < count; i++)
			add(&sum, &watches[i]->sums[cause]);
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

static void write_listed(FILE *out, const struct watch *const *watches, unsigned count)
{
	const char *comma = "";

	fputs("\"disturbances\": [", out);
	for (unsigned i = 0; i < count; i++) {
		for (unsigned n = 0; n < watches[i]->listed_count; n++) {
			const struct disturbance *one = &watches[i]->listed[n];

			fprintf(out,
				"%s{\"at_ns\": %lld, \"duration_ns\": %lld, \"cause\": \"%s\", \"late_ops\": %lld, "
				"\"max_late_ns\": %lld, \"thread\": %u}",
				comma, (long long)one->at_ns, (long long)parts_sum_ns(one), cause_names[one->cause],
				(long long)one->late_ops, (long long)one->max_late_ns, i);
			comma = ", ";
		}
	}
	fputs("]", out);
}

void watch_write_json(FILE *out, const struct watch *const *watches, unsigned count)
{
	const struct witness *witness = count ? watches[0]->witness : NULL;
	int64_t ran_ns = 0, waited_ns = 0, faults = 0, forced = 0;
	bool accounted = true;

	for (unsigned i = 0; i < count; i++) {
		const struct watch *watch = watches[i];

		ran_ns += watch->last.ran_ns - watch->first.ran_ns;
		waited_ns += watch->last.waited_ns - watch->first.waited_ns;
		faults += watch->last.major_faults - watch->first.major_faults;
		forced += watch->last.switches_forced - watch->first.switches_forced;
		accounted = accounted && watch->schedstat_fd >= 0;
	}
	fprintf(out, "{\"ran_ns\": %lld, \"waited_ns\": ", (long long)ran_ns);
	/* A kernel without CONFIG_SCHED_INFO keeps no account of waiting. */
	if (accounted)
		fprintf(out, "%lld", (long long)waited_ns);
	else
		fputs("null", out);
	fprintf(out, ", \"preemptions\": %lld, \"major_faults\": %lld, \"stops\": %lld, \"suspended_ns\": %lld, ",
		(long long)forced, (long long)faults, witness ? (long long)atomic_load(&witness->continued) : 0,
		witness ? (long long)atomic_load(&witness->suspended_ns) : 0);
	write_causes(out, watches, count);
	fputs(", ", out);
	write_listed(out, watches, count);
	fputs("}", out);
}
