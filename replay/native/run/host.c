/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "host.h"
#include "cleanup.h"
#include "clock.h"
#include "memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define HIGHEST_NICE (-20)
#define SESSION_NICE (-10) /* a drive in software needs kernel threads, which keep a tenth */
#define THREAD_STACK_BYTES (256u << 10)
#define REALTIME_NS (20 * NS_PER_MS)
#define PAUSE_NS (2 * NS_PER_MS)

bool host_cpus_init(struct host_cpus *cpus)
{
	cpus->count = 0;
	if (sched_getaffinity(0, sizeof(cpus->allowed), &cpus->allowed))
		return false;
	/* From the last to the first: interrupts and daemons mostly run on the first. */
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET(cpu, &cpus->allowed))
			cpus->order[cpus->count++] = cpu;
	return cpus->count > 0;
}

int host_cpu_of_thread(const struct host_cpus *cpus, unsigned thread)
{
	return cpus->order[thread % cpus->count];
}

void host_avoid_threads(const struct host_cpus *cpus, unsigned thread_count)
{
	cpu_set_t others = cpus->allowed;

	for (unsigned thread = 0; thread < thread_count; thread++)
		CPU_CLR(host_cpu_of_thread(cpus, thread), &others);
	if (CPU_COUNT(&others))
		sched_setaffinity(0, sizeof(others), &others);
}

void host_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

void host_unpin(const struct host_cpus *cpus)
{
	sched_setaffinity(0, sizeof(cpus->allowed), &cpus->allowed);
}

void host_limit_stacks(void)
{
	pthread_attr_t attributes;

	if (pthread_attr_init(&attributes))
		return;
	if (!pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES))
		pthread_setattr_default_np(&attributes);
	pthread_attr_destroy(&attributes);
}

bool memory_touches = true;

bool host_lock_memory(void)
{
	return !mlockall(MCL_CURRENT);
}

void host_reduce_timer_slack(void)
{
	prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
}

void host_raise_session(void)
{
	int fd CLEANUP_CLOSE = getsid(0) == getpid() ? open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC) : -1;

	if (fd >= 0)
		dprintf(fd, "%d", SESSION_NICE);
}

bool host_take_priority(bool realtime)
{
	const struct sched_param lowest = { .sched_priority = 1 }, none = { .sched_priority = 0 };

	if (realtime)
		return !sched_setscheduler(0, SCHED_FIFO, &lowest);
	sched_setscheduler(0, SCHED_OTHER, &none);
	return !setpriority(PRIO_PROCESS, 0, HIGHEST_NICE);
}

void realtime_begin(struct realtime_share *share, int64_t now_ns)
{
	/* Of a process that was started at real-time priority, it stays. */
	*share = (struct realtime_share){
		.since_ns = now_ns,
		.granted = sched_getscheduler(0) == SCHED_OTHER && host_take_priority(true),
	};
}

void realtime_review(struct realtime_share *share, int64_t now_ns, int64_t slept_ns)
{
	share->slept_ns += slept_ns;
	if (!share->granted || now_ns - share->since_ns < (share->paused ? PAUSE_NS : REALTIME_NS))
		return;
	if (share->paused || share->slept_ns < PAUSE_NS) {
		share->paused = !share->paused;
		host_take_priority(!share->paused);
	}
	share->since_ns = now_ns;
	share->slept_ns = 0;
}
