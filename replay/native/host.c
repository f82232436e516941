/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "host.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* The nice value of the most weight. */
#define FIRST_OF_ALL (-20)

static cpu_set_t allowed;
static int chosen[CPU_SETSIZE];
static unsigned chosen_count;

bool host_choose_cpus(int wanted)
{
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return false;
	if (wanted >= 0) {
		if (wanted >= CPU_SETSIZE || !CPU_ISSET(wanted, &allowed))
			return false;
		chosen[chosen_count++] = wanted;
	}
	/* From the last: interrupts and the rest of the system gather on the first. */
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET(cpu, &allowed) && cpu != wanted)
			chosen[chosen_count++] = cpu;
	return chosen_count > 0;
}

int host_cpu_of_thread(unsigned thread)
{
	return chosen[thread % chosen_count];
}

void host_keep_off_threads(unsigned thread_count)
{
	cpu_set_t others = allowed;

	for (unsigned thread = 0; thread < thread_count; thread++)
		CPU_CLR(host_cpu_of_thread(thread), &others);
	if (CPU_COUNT(&others))
		sched_setaffinity(0, sizeof(others), &others);
}

void host_pin(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

void host_unpin(void)
{
	sched_setaffinity(0, sizeof(allowed), &allowed);
}

bool host_lock_memory(void)
{
	return !mlockall(MCL_CURRENT);
}

void host_wake_in_time(void)
{
	prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
}

bool host_take_priority(bool realtime)
{
	const struct sched_param lowest = { .sched_priority = 1 }, none = { .sched_priority = 0 };

	if (realtime)
		return !sched_setscheduler(0, SCHED_FIFO, &lowest);
	sched_setscheduler(0, SCHED_OTHER, &none);
	return !setpriority(PRIO_PROCESS, 0, FIRST_OF_ALL);
}
