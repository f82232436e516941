/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The time of a run: nanoseconds since its start, of the machine's clock or of
 * a simulated drive's, which stands still until somebody moves it on.
 */
#ifndef BLKREEL_RUN_CLOCK_H
#define BLKREEL_RUN_CLOCK_H

#include <stdbool.h>

#include "clock.h"

struct run_clock {
	bool is_virtual;
	int64_t now_ns;   /* of a virtual one */
	int64_t start_ns; /* of another, on CLOCK_MONOTONIC */
};

static inline int64_t run_clock_ns(const struct run_clock *clock)
{
	return clock->is_virtual ? clock->now_ns : monotonic_ns() - clock->start_ns;
}

#endif
