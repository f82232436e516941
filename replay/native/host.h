/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What this machine grants the issuing thread: a processor, memory that stays, priority. Nothing here is required. */
#ifndef BLKREEL_HOST_H
#define BLKREEL_HOST_H

#include <stdbool.h>

/* The processor to issue from: `wanted`, or the last one of those we may use. -1: `wanted` is not one of them. */
int host_choose_cpu(int wanted);

/* Keeps the calling thread, and those it starts, off a processor where there is another one. */
void host_keep_off_cpu(int cpu);

void host_pin(int cpu);

/* Any processor that the process may use. */
void host_unpin(void);

/* True where all that is mapped by now stays in memory. */
bool host_lock_memory(void);

/* Sleeps end when asked for, not up to 50 us later; with `realtime` nothing ordinary preempts us. True: granted. */
bool host_raise_priority(bool realtime);

#endif
