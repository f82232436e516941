/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What this machine grants the issuing threads: a processor, memory that stays, priority. Nothing here is required. */
#ifndef BLKREEL_HOST_H
#define BLKREEL_HOST_H

#include <stdbool.h>

/* Chooses the processors to issue from: `wanted` or the last one first. False: `wanted` is not one we may use. */
bool host_choose_cpus(int wanted);

/* The processor of an issuing thread, counted from 0; beyond the number of processors they are shared. */
int host_cpu_of_thread(unsigned thread);

/* Keeps the calling thread, and those it starts, off the processors of so many issuing threads, where there are others. */
void host_keep_off_threads(unsigned thread_count);

void host_pin(int cpu);

/* Any processor that the process may use. */
void host_unpin(void);

/* True where all that is mapped by now stays in memory. */
bool host_lock_memory(void);

/* Sleeps of the calling thread end when asked for, not up to 50 us later. */
void host_wake_in_time(void);

/* With real-time priority nothing ordinary preempts the calling thread; without it is the first of the ordinary. True: granted. */
bool host_take_priority(bool realtime);

#endif
