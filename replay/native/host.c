/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "host.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>

static cpu_set_t allowed;

int host_choose_cpu(int wanted)
{
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return -1;
	if (wanted >= 0)
		return wanted < CPU_SETSIZE && CPU_ISSET(wanted, &allowed) ? wanted : -1;
	/* The last: interrupts and the rest of the system gather on the first. */
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET(cpu, &allowed))
			return cpu;
	return -1;
}

void host_keep_off_cpu(int cpu)
{
	cpu_set_t others = allowed;

	CPU_CLR(cpu, &others);
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

bool host_raise_priority(bool realtime)
{
	const struct sched_param lowest = { .sched_priority = 1 };

	prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
	return realtime && !sched_setscheduler(0, SCHED_FIFO, &lowest);
}
