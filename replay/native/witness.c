/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "witness.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#include "clock.h"
#include "schedstat.h"

#define NAP_NS (5 * NS_PER_MS)
/* Less than that is an ordinary wake-up. */
#define GAP_NS NS_PER_MS
/* Two clocks that are not read at one moment. */
#define SUSPEND_NS (10 * NS_PER_MS)

/* The handler's; there is one witness in a process. */
static struct witness *here;

static void on_continue(int signal)
{
	int64_t count = atomic_load(&here->continued);
	struct witness_gap *stop = &here->stops[count % WITNESS_GAPS];

	(void)signal;
	atomic_store(&stop->from_ns, atomic_load(&here->beat_ns));
	atomic_store(&stop->to_ns, monotonic_ns());
	atomic_store(&here->continued, count + 1);
}

static void keep_gap(struct witness *witness, int64_t from_ns, int64_t to_ns)
{
	unsigned count = atomic_load(&witness->gap_count);
	struct witness_gap *gap = &witness->gaps[count % WITNESS_GAPS];

	atomic_store(&gap->from_ns, from_ns);
	atomic_store(&gap->to_ns, to_ns);
	atomic_store(&witness->gap_count, count + 1);
}

static void *nap(void *argument)
{
	struct witness *witness = argument;
	int64_t asleep_ns = clock_read_ns(CLOCK_BOOTTIME) - monotonic_ns();
	struct schedstat before = { 0 }, after;
	int fd = schedstat_open();
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCONT);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	schedstat_read(fd, &before);
	for (;;) {
		int64_t from_ns = monotonic_ns(), now_ns, missed_ns, slept_ns;

		sleep_ns(NAP_NS);
		now_ns = monotonic_ns();
		after = before;
		schedstat_read(fd, &after);
		/* What it waited for a processor itself is nobody else's. */
		missed_ns = now_ns - from_ns - NAP_NS - (after.waited_ns - before.waited_ns);
		before = after;
		if (missed_ns > GAP_NS)
			keep_gap(witness, from_ns, now_ns);
		slept_ns = clock_read_ns(CLOCK_BOOTTIME) - monotonic_ns() - asleep_ns;
		if (slept_ns > SUSPEND_NS)
			atomic_store(&witness->suspended_ns, slept_ns);
		atomic_store(&witness->beat_ns, now_ns);
	}
	return NULL;
}

int witness_start(struct witness *witness)
{
	struct sigaction action = { .sa_handler = on_continue, .sa_flags = SA_RESTART };
	pthread_t thread;
	sigset_t set;
	int err;

	here = witness;
	sigaction(SIGCONT, &action, NULL);
	/* Threads started from here on inherit it blocked, and so does the caller: the witness alone unblocks it. */
	sigemptyset(&set);
	sigaddset(&set, SIGCONT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	err = pthread_create(&thread, NULL, nap, witness);
	if (!err)
		pthread_detach(thread);
	return -err;
}

int64_t witness_missed_ns(const struct witness *witness, int64_t from_ns, int64_t to_ns)
{
	unsigned count = atomic_load(&witness->gap_count);
	unsigned oldest = count > WITNESS_GAPS ? count - WITNESS_GAPS : 0;
	int64_t missed_ns = 0;

	for (unsigned i = oldest; i < count; i++) {
		const struct witness_gap *gap = &witness->gaps[i % WITNESS_GAPS];
		int64_t low_ns = atomic_load(&gap->from_ns), high_ns = atomic_load(&gap->to_ns);

		low_ns = low_ns > from_ns ? low_ns : from_ns;
		high_ns = high_ns < to_ns ? high_ns : to_ns;
		missed_ns += high_ns > low_ns ? high_ns - low_ns : 0;
	}
	return missed_ns;
}

bool witness_continued(const struct witness *witness, int64_t from_ns, int64_t to_ns)
{
	int64_t count = atomic_load(&witness->continued);

	for (int64_t i = count > WITNESS_GAPS ? count - WITNESS_GAPS : 0; i < count; i++) {
		const struct witness_gap *stop = &witness->stops[i % WITNESS_GAPS];

		if (atomic_load(&stop->from_ns) <= to_ns && atomic_load(&stop->to_ns) >= from_ns)
			return true;
	}
	return false;
}
