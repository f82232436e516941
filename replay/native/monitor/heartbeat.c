/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "heartbeat.h"

#include <signal.h>
#include <unistd.h>

#include "run/clock.h"
#include "run/confine.h"
#include "run/host.h"
#include "schedstat.h"

#define BEAT_NS (5 * NS_PER_MS)
/* A wake-up that is less late is normal. */
#define GAP_NS NS_PER_MS
/* Tolerance, because two clocks are not read at the same time. */
#define SUSPEND_NS (10 * NS_PER_MS)

/* File scope, because a signal handler takes no argument. */
static struct heartbeat *handler_heartbeat;

static void on_continue(int signal)
{
	struct heartbeat *heartbeat = handler_heartbeat;
	int64_t count = atomic_load(&heartbeat->continued);
	struct heartbeat_gap *stop = &heartbeat->stops[count % HEARTBEAT_GAPS];

	(void)signal;
	atomic_store(&stop->from_ns, atomic_load(&heartbeat->beat_ns));
	atomic_store(&stop->to_ns, monotonic_ns());
	atomic_store(&heartbeat->continued, count + 1);
}

static void add_gap(struct heartbeat *heartbeat, int64_t from_ns, int64_t to_ns)
{
	unsigned count = atomic_load(&heartbeat->gap_count);
	struct heartbeat_gap *gap = &heartbeat->gaps[count % HEARTBEAT_GAPS];

	atomic_store(&gap->from_ns, from_ns);
	atomic_store(&gap->to_ns, to_ns);
	atomic_store(&heartbeat->gap_count, count + 1);
}

static void *beat(void *argument)
{
	struct heartbeat *heartbeat = argument;
	int64_t asleep_ns = clock_read_ns(CLOCK_BOOTTIME) - monotonic_ns();
	int64_t waited_ns, waited_before_ns;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCONT);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	heartbeat->schedstat_fd = schedstat_open(); /* of this thread */
	if (heartbeat->realtime)
		host_take_priority(true);
	confine_thread(OTHER_THREAD);
	waited_ns = schedstat_waited_ns(heartbeat->schedstat_fd, 0);
	for (;;) {
		int64_t from_ns = monotonic_ns(), now_ns, missed_ns, slept_ns;

		sleep_ns(BEAT_NS);
		now_ns = monotonic_ns();
		waited_before_ns = waited_ns;
		waited_ns = schedstat_waited_ns(heartbeat->schedstat_fd, waited_ns);
		/* Waiting for its own CPU is not a gap of the machine. */
		missed_ns = now_ns - from_ns - BEAT_NS - (waited_ns - waited_before_ns);
		if (missed_ns > GAP_NS)
			add_gap(heartbeat, from_ns, now_ns);
		slept_ns = clock_read_ns(CLOCK_BOOTTIME) - monotonic_ns() - asleep_ns;
		if (slept_ns > SUSPEND_NS)
			atomic_store(&heartbeat->suspended_ns, slept_ns);
		atomic_store(&heartbeat->beat_ns, now_ns);
	}
	return NULL;
}

int heartbeat_init(struct heartbeat *heartbeat, bool realtime)
{
	struct sigaction action = { .sa_handler = on_continue, .sa_flags = SA_RESTART };
	sigset_t set;
	int err;

	handler_heartbeat = heartbeat;
	heartbeat->realtime = realtime;
	sigaction(SIGCONT, &action, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGCONT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	heartbeat->schedstat_fd = -1;
	err = pthread_create(&heartbeat->thread, NULL, beat, heartbeat);
	heartbeat->started = !err;
	return -err;
}

void heartbeat_deinit(struct heartbeat *heartbeat)
{
	if (!heartbeat->started)
		return;
	signal(SIGCONT, SIG_DFL);
	pthread_cancel(heartbeat->thread);
	pthread_join(heartbeat->thread, NULL);
	if (heartbeat->schedstat_fd >= 0)
		close(heartbeat->schedstat_fd);
}

int64_t heartbeat_missed_ns(const struct heartbeat *heartbeat, int64_t from_ns, int64_t to_ns)
{
	unsigned count = atomic_load(&heartbeat->gap_count);
	unsigned oldest = count > HEARTBEAT_GAPS ? count - HEARTBEAT_GAPS : 0;
	int64_t missed_ns = 0;

	for (unsigned i = oldest; i < count; i++) {
		const struct heartbeat_gap *gap = &heartbeat->gaps[i % HEARTBEAT_GAPS];
		int64_t low_ns = atomic_load(&gap->from_ns), high_ns = atomic_load(&gap->to_ns);

		low_ns = low_ns > from_ns ? low_ns : from_ns;
		high_ns = high_ns < to_ns ? high_ns : to_ns;
		missed_ns += high_ns > low_ns ? high_ns - low_ns : 0;
	}
	return missed_ns;
}

bool heartbeat_continued(const struct heartbeat *heartbeat, int64_t from_ns, int64_t to_ns)
{
	int64_t count = atomic_load(&heartbeat->continued);

	for (int64_t i = count > HEARTBEAT_GAPS ? count - HEARTBEAT_GAPS : 0; i < count; i++) {
		const struct heartbeat_gap *stop = &heartbeat->stops[i % HEARTBEAT_GAPS];

		if (atomic_load(&stop->from_ns) <= to_ns && atomic_load(&stop->to_ns) >= from_ns)
			return true;
	}
	return false;
}
