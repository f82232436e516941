/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Watches an issuing thread, and tells why it was late. The loop says on each
 * turn what time it is, and before it rests until when; where its clock
 * jumped further than that, the scheduler's account of the thread tells the
 * reason. A turn costs two comparisons; the account is read where nothing is
 * due, or where it is too late anyway.
 *
 * Times are those of the run: nanoseconds since its start.
 */
#ifndef BLKREEL_WATCH_H
#define BLKREEL_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "witness.h"

/* A turn of the loop that took longer than it meant to by so much was disturbed. */
#define WATCH_JUMP_NS 50000ll
/* What is told: disturbances that took so long in all, or made a row so late. */
#define WATCH_TOLD_NS 100000ll
/* The longest ones are listed one by one, all are in the sums. */
#define WATCH_LISTED 64

/* What a disturbance can be made of. */
enum watch_part {
	PART_WAITED,  /* the thread could have run, and did not get the processor */
	PART_BLOCKED, /* it could not have run, longer than it had asked for */
	PART_RAN,     /* it ran all the time, but not in our code */
	PART_PLAN,    /* the plan was not there */
	PART_RECORDS, /* there was no room for records */
	PART_COUNT,
};

enum watch_cause {
	CAUSE_PREEMPTED, /* other work had the processor */
	CAUSE_STOPPED,   /* the process was stopped by a signal, and let go on by another */
	CAUSE_MACHINE,   /* all stood still: a hypervisor or firmware took the processor, or the process was frozen */
	CAUSE_PAGING,    /* memory had to be read from a drive */
	CAUSE_WAKEUP,    /* its sleep ended late */
	CAUSE_BLOCKED,   /* the kernel held the call that issues */
	CAUSE_KERNEL,    /* the kernel worked in its place: in the call, or for interrupts */
	CAUSE_PLAN,
	CAUSE_RECORDS,
	CAUSE_OVERLOAD, /* none of these: more was due than the thread can issue */
	CAUSE_COUNT,
};

/* From the moment the loop fell behind until nothing was due any more. */
struct disturbance {
	int64_t at_ns;
	int64_t until_ns;
	int64_t parts_ns[PART_COUNT];
	int64_t late_ops;    /* rows issued more than WATCH_TOLD_NS late */
	int64_t max_late_ns;
	int64_t plan_late_ns; /* how late the plan itself was */
	int64_t major_faults;
	bool resting; /* it was in a sleep */
	bool taken;   /* it did not run, and yet nobody had put it off its processor */
	enum watch_cause cause;
};

struct watch_sum {
	int64_t count, total_ns, longest_ns, late_ops, max_late_ns;
};

/* The scheduler's account of the thread at a moment. */
struct watch_reading {
	int64_t at_ns;
	int64_t ran_ns;
	int64_t waited_ns; /* ready to run without a processor */
	int64_t major_faults;
	int64_t switches_forced, switches_own;
};

struct watch {
	int64_t expected_ns; /* when the next turn should be */
	int64_t rest_ns;     /* since when it rests */
	bool resting, sleeping;
	bool open; /* `current` is going on */
	struct disturbance current;
	struct watch_reading first, last;
	int64_t slept_ns; /* as asked for, since the last reading */
	int64_t start_ns; /* on CLOCK_MONOTONIC */
	struct witness *witness;
	struct watch_sum sums[CAUSE_COUNT];
	struct disturbance listed[WATCH_LISTED];
	unsigned listed_count;
	int schedstat_fd;
	bool off; /* the clock is not this machine's, and says nothing of it */
};

/* In the issuing thread, before its start: opens and touches everything. witness may be NULL. */
void watch_init(struct watch *watch, struct witness *witness);
/* Right before the start is set: from here on it is told what holds the thread up. */
void watch_ready(struct watch *watch);
void watch_start(struct watch *watch, int64_t start_ns);
void watch_end(struct watch *watch, int64_t now_ns);

/* The seldom halves of what stands below. */
void watch_jumped(struct watch *watch, int64_t now_ns);
void watch_look_round(struct watch *watch, int64_t now_ns, bool behind);

/* Turns that never rest have their account read this often; those that do, when they rest. */
#define WATCH_READ_BUSY_NS 10000000ll
#define WATCH_READ_REST_NS 1000000ll
/* Reading takes some microseconds: with less time to spare it waits. */
#define WATCH_SPARE_NS 20000ll

/* On each turn of the loop. */
static inline void watch_turn(struct watch *watch, int64_t now_ns)
{
	if (watch->off)
		return;
	if (now_ns - watch->expected_ns > WATCH_JUMP_NS || watch->resting ||
	    now_ns - watch->last.at_ns > WATCH_READ_BUSY_NS)
		watch_jumped(watch, now_ns);
	watch->expected_ns = now_ns;
}

enum watch_rest {
	REST_SPINS,
	REST_SLEEPS,
	REST_SLEEPS_BEHIND, /* rows are late, and there is no room for them */
};

/* Nothing can be issued before until_ns, or before a completion: the loop sleeps till then at most, or spins. */
static inline void watch_rest(struct watch *watch, int64_t now_ns, int64_t until_ns, enum watch_rest how)
{
	bool sleeping = how != REST_SPINS;

	if (watch->off || until_ns - now_ns < WATCH_SPARE_NS)
		return;
	if ((watch->open && how != REST_SLEEPS_BEHIND) || now_ns - watch->last.at_ns > WATCH_READ_REST_NS)
		watch_look_round(watch, now_ns, how == REST_SLEEPS_BEHIND);
	watch->resting = true;
	watch->sleeping = sleeping;
	watch->rest_ns = now_ns;
	watch->expected_ns = sleeping ? until_ns : now_ns;
}

/* The turn was held up for a reason that the loop knows. */
void watch_held_up(struct watch *watch, enum watch_part part, int64_t now_ns);

/* A row of the plan that was missing since starved_ns has come, and was due at due_ns; -1: as soon as there is room. */
void watch_plan_late(struct watch *watch, int64_t starved_ns, int64_t due_ns, int64_t now_ns);

/* A row went out more than WATCH_TOLD_NS late, and not because the drive was slow. */
void watch_late(struct watch *watch, int64_t due_ns, int64_t submit_ns);

/* Whether a row so late was held up here, although the queue is full by now: with what piled up meanwhile. */
static inline bool watch_explains(const struct watch *watch, int64_t late_ns)
{
	int64_t sum_ns = 0;

	if (!watch->open)
		return false;
	for (int part = 0; part < PART_COUNT; part++)
		sum_ns += watch->current.parts_ns[part];
	return sum_ns >= WATCH_TOLD_NS && sum_ns >= late_ns / 2;
}

/* The end block's "watch" of all issuing threads, a JSON object. */
void watch_write_json(FILE *out, const struct watch *const *watches, unsigned count);

#endif
