/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Finds the causes of late I/O in an issuing thread. The loop reports each turn and each planned sleep. When the time
 * between turns exceeds the plan, the scheduler's statistics of the thread give the cause. A turn costs two
 * comparisons; the statistics are read while nothing is due, or after a delay.
 *
 * Times are nanoseconds since the start of the run.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "heartbeat.h"

/* A turn that is later than planned by more than this is a stall. */
#define STALL_JUMP_NS 50000ll
/* A stall is reported if it is this long or makes a row this late. */
#define STALL_REPORT_NS 100000ll
/* The longest stalls are listed; the sums count all. */
#define STALLS_LISTED 64

/* Where the time of a stall went. */
enum stall_part {
	PART_WAITED,  /* runnable without a CPU */
	PART_BLOCKED, /* not runnable for longer than planned */
	PART_RAN,     /* on a CPU outside of this program: kernel, interrupts or a hypervisor */
	PART_PLAN,    /* the plan was late */
	PART_RECORDS, /* no room for records */
	PART_COUNT,
};

enum stall_cause {
	CAUSE_PREEMPTED, /* by another process */
	CAUSE_STOPPED,   /* SIGSTOP, then SIGCONT */
	CAUSE_MACHINE,   /* CPU stolen by hypervisor or firmware, or a frozen control group */
	CAUSE_PAGING,    /* major page faults */
	CAUSE_WAKEUP,    /* late wake-up */
	CAUSE_BLOCKED,   /* the submitting system call blocked */
	CAUSE_KERNEL,    /* CPU in kernel or interrupts */
	CAUSE_PLAN,
	CAUSE_RECORDS,
	CAUSE_OVERLOAD, /* more rows were due than the thread can issue */
	CAUSE_COUNT,
};

/* From the first late turn until nothing is due. */
struct stall {
	int64_t at_ns;
	int64_t until_ns;
	int64_t parts_ns[PART_COUNT];
	int64_t late_ops;    /* rows later than STALL_REPORT_NS */
	int64_t max_late_ns;
	int64_t plan_late_ns; /* of the plan itself */
	int64_t major_faults;
	bool resting; /* during a sleep */
	bool stolen;  /* the thread did not run, without a voluntary context switch */
	enum stall_cause cause;
};

struct stall_sum {
	int64_t count, total_ns, longest_ns, late_ops, max_late_ns;
};

/* The kernel's statistics of the thread. */
struct thread_account {
	int64_t at_ns;
	int64_t ran_ns;
	int64_t waited_ns; /* runnable without a CPU */
	int64_t major_faults;
	int64_t involuntary_switches, voluntary_switches;
};

struct stall_monitor {
	int64_t expected_ns; /* the planned time of the next turn */
	int64_t rest_ns;     /* start of the planned sleep or spin */
	bool resting, sleeping;
	bool open; /* `current` has begun and not ended */
	struct stall current;
	struct thread_account first, last;
	int64_t slept_ns; /* as planned, since the last reading */
	bool kept; /* `last` is older than the last reading */
	int64_t start_ns; /* on CLOCK_MONOTONIC */
	struct heartbeat *heartbeat;
	struct stall_sum sums[CAUSE_COUNT];
	struct stall listed[STALLS_LISTED];
	unsigned listed_count;
	int schedstat_fd;
	bool off; /* on a virtual clock */
	bool reads_wakeups; /* a plan with deadlines: there is time to read the statistics after each wake-up */
	bool woken;         /* by a completion, after a planned sleep longer than STALL_JUMP_NS */
	int64_t stalled_ns; /* start of the stall in which completions that wait to be reaped arrived; INT64_MAX: none */
};

/* Called by the issuing thread before the run. heartbeat may be NULL. */
void stall_monitor_init(struct stall_monitor *monitor, struct heartbeat *heartbeat);
void stall_monitor_deinit(struct stall_monitor *monitor);

/* Takes the first reading, right before the start time is set. */
void stall_monitor_ready(struct stall_monitor *monitor);
void stall_monitor_start(struct stall_monitor *monitor, int64_t start_ns);
void stall_monitor_end(struct stall_monitor *monitor, int64_t now_ns);

/* The rare cases of the inline functions below. */
void stall_monitor_jump(struct stall_monitor *monitor, int64_t now_ns);
void stall_monitor_review(struct stall_monitor *monitor, int64_t now_ns, bool behind);

/* How often the statistics are read in a loop that never sleeps, and in one that does. */
#define ACCOUNT_BUSY_NS 10000000ll
#define ACCOUNT_REST_NS 1000000ll
/* Reading takes some microseconds, so it needs this much spare time. */
#define ACCOUNT_SPARE_NS 20000ll

/* Called on each turn of the loop. */
static inline void stall_monitor_turn(struct stall_monitor *monitor, int64_t now_ns)
{
	if (monitor->off)
		return;
	if (now_ns - monitor->expected_ns > STALL_JUMP_NS || monitor->resting ||
	    now_ns - monitor->last.at_ns > ACCOUNT_BUSY_NS)
		stall_monitor_jump(monitor, now_ns);
	monitor->expected_ns = now_ns;
}

enum rest_kind {
	REST_SPINS,
	REST_SLEEPS,
	REST_SLEEPS_BEHIND, /* rows are late for lack of room */
};

/* Reads the statistics after a wake-up; part of stall_monitor_seen_from. */
void stall_monitor_woken(struct stall_monitor *monitor, int64_t now_ns);

/*
 * The earliest time at which completions reaped at now_ns may have arrived, because the thread was stalled since then;
 * now_ns if it was not.
 */
static inline int64_t stall_monitor_seen_from(struct stall_monitor *monitor, int64_t now_ns)
{
	if (monitor->off)
		return now_ns;
	if (now_ns - monitor->expected_ns > STALL_JUMP_NS && monitor->expected_ns < monitor->stalled_ns)
		monitor->stalled_ns = monitor->expected_ns;
	if (monitor->woken)
		stall_monitor_woken(monitor, now_ns);
	return monitor->stalled_ns < now_ns ? monitor->stalled_ns : now_ns;
}

/* No completion waits to be reaped. */
static inline void stall_monitor_reaped(struct stall_monitor *monitor)
{
	monitor->stalled_ns = INT64_MAX;
	monitor->woken = false;
}

/* The loop sleeps or spins until until_ns or a completion, because nothing can be issued before. */
static inline void stall_monitor_rest(struct stall_monitor *monitor, int64_t now_ns, int64_t until_ns, enum rest_kind kind)
{
	bool sleeping = kind != REST_SPINS;

	if (monitor->off || until_ns - now_ns < ACCOUNT_SPARE_NS)
		return;
	if ((monitor->open && kind != REST_SLEEPS_BEHIND) || now_ns - monitor->last.at_ns > ACCOUNT_REST_NS)
		stall_monitor_review(monitor, now_ns, kind == REST_SLEEPS_BEHIND);
	monitor->resting = true;
	monitor->sleeping = sleeping;
	monitor->rest_ns = now_ns;
	monitor->expected_ns = sleeping ? until_ns : now_ns;
}

/* A delay of the turn with a known cause. */
void stall_monitor_delay(struct stall_monitor *monitor, enum stall_part part, int64_t now_ns);

/* A plan row that was missing since starved_ns has arrived; due_ns -1: it has no deadline. */
void stall_monitor_plan_late(struct stall_monitor *monitor, int64_t starved_ns, int64_t due_ns, int64_t now_ns);

/* A row was issued more than STALL_REPORT_NS late, and not because of the drive. */
void stall_monitor_late(struct stall_monitor *monitor, int64_t due_ns, int64_t submit_ns);

/* Whether the current stall explains the lateness of a row that found the queue full. */
static inline bool stall_monitor_explains(const struct stall_monitor *monitor, int64_t late_ns)
{
	int64_t sum_ns = 0;

	if (!monitor->open)
		return false;
	for (int part = 0; part < PART_COUNT; part++)
		sum_ns += monitor->current.parts_ns[part];
	return sum_ns >= STALL_REPORT_NS && sum_ns >= late_ns / 2;
}

/* Writes the object "stall_monitor" of the end block, for all issuing threads. */
void stall_monitor_write_json(FILE *out, const struct stall_monitor *const *monitors, unsigned count);
