/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CPUs, memory and priority of the issuing threads, without each of which a run works; and io_uring, which it needs. */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* Of an io_uring that the kernel or a container refuses. */
#define IO_URING_REMEDY "find the reason with: blkreel doctor. It takes Linux 5.11, kernel.io_uring_disabled=0 and, in a " \
			"container, --security-opt seccomp=unconfined"

struct host_cpus {
	cpu_set_t allowed;
	int order[CPU_SETSIZE]; /* in which issuing threads take them */
	unsigned count;
};

/* Reads the allowed CPUs, from the last to the first. Returns whether the kernel has told them. */
bool host_cpus_init(struct host_cpus *cpus);

/* The CPU of an issuing thread. Threads share CPUs if there are more threads than CPUs. */
int host_cpu_of_thread(const struct host_cpus *cpus, unsigned thread);

/* Moves the caller, and threads it creates, to CPUs that these issuing threads do not use, if there are any. */
void host_avoid_threads(const struct host_cpus *cpus, unsigned thread_count);

void host_pin(int cpu);
void host_unpin(const struct host_cpus *cpus);

/* Limits the stacks of new threads: all mapped memory is locked, and a stack is 8 MiB by default. */
void host_limit_stacks(void);

/* Locks all mapped memory. Returns whether the kernel allowed it. */
bool host_lock_memory(void);

/* Sets the timer slack of the calling thread from 50 us to 1 ns. */
void host_reduce_timer_slack(void);

/*
 * Makes an ordinary priority of the caller's threads count beside other sessions, where the kernel shares processors
 * among sessions first (autogroup) and the caller's is its own.
 */
void host_raise_session(void);

/* Gives the caller real-time priority, or the highest ordinary one. Returns whether the kernel allowed it. */
bool host_take_priority(bool realtime);

/*
 * Real-time priority of a thread with CAP_SYS_NICE that must not be late, except for a tenth of the time while it
 * hardly sleeps: else the kernel would stop it for some 50 ms in one piece, and the kernel's workers would starve.
 */
struct realtime_share {
	int64_t since_ns, slept_ns;
	bool granted, paused;
};

void realtime_begin(struct realtime_share *share, int64_t now_ns);

/* slept_ns: by the thread since the last call. */
void realtime_review(struct realtime_share *share, int64_t now_ns, int64_t slept_ns);
