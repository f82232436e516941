/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A thread that sleeps and wakes at fixed intervals on another CPU than the issuing threads. If both are late at the
 * same time, the process was stopped, or a hypervisor or firmware stole the CPUs.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HEARTBEAT_GAPS 64u /* the last gaps are stored; a power of two */

struct heartbeat_gap {
	_Atomic int64_t from_ns, to_ns;
};

/* Times are on CLOCK_MONOTONIC. */
struct heartbeat {
	_Atomic int64_t beat_ns; /* of the last wake-up */
	atomic_uint gap_count;
	struct heartbeat_gap gaps[HEARTBEAT_GAPS];
	_Atomic int64_t continued; /* times that SIGCONT continued the process */
	struct heartbeat_gap stops[HEARTBEAT_GAPS]; /* from the last beat to the handler of SIGCONT */
	_Atomic int64_t suspended_ns; /* of the machine, which CLOCK_MONOTONIC does not count */
	pthread_t thread;
	bool started, realtime;
	int schedstat_fd;
};

/*
 * Starts the thread, in a zeroed struct. realtime: at real-time priority where that is granted, because beside busy
 * processes it would wake up too late to tell what a stall of the issuing threads was. It inherits the caller's blocked
 * signals, except SIGCONT, which the caller and its later threads block. Returns 0 or a negative errno.
 */
int heartbeat_init(struct heartbeat *heartbeat, bool realtime);
void heartbeat_deinit(struct heartbeat *heartbeat);

/* How much of a span lies in gaps. */
int64_t heartbeat_missed_ns(const struct heartbeat *heartbeat, int64_t from_ns, int64_t to_ns);

/* Whether the process may have been continued within a span. */
bool heartbeat_continued(const struct heartbeat *heartbeat, int64_t from_ns, int64_t to_ns);
