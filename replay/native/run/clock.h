/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Time in integer nanoseconds. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_S 1000000000ll
#define NS_PER_MS 1000000ll

/* Nanoseconds since the start of a run, on the monotonic clock or on the virtual clock of simulated drives. */
struct run_clock {
	bool is_virtual;
	int64_t now_ns;   /* of a virtual clock */
	int64_t start_ns; /* on CLOCK_MONOTONIC otherwise */
};

static inline int64_t clock_read_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static inline int64_t monotonic_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

static inline int64_t run_clock_ns(const struct run_clock *clock)
{
	return clock->is_virtual ? clock->now_ns : monotonic_ns() - clock->start_ns;
}

/* Returns false if a signal ended the sleep. */
static inline bool sleep_ns(int64_t duration_ns)
{
	struct timespec span = { duration_ns / NS_PER_S, duration_ns % NS_PER_S };

	return !nanosleep(&span, NULL);
}

static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* How long to sleep before a deadline, at most max_ns; 0 once the last spin_ns before it have begun. */
static inline int64_t sleep_before(int64_t deadline_ns, int64_t now_ns, int64_t spin_ns, int64_t max_ns)
{
	int64_t left_ns = deadline_ns - now_ns - spin_ns;

	if (left_ns <= 0)
		return 0;
	return left_ns < max_ns ? left_ns : max_ns;
}
