/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The reason to end a run early. Any thread or the signal handler may set it; the first reason stays. */
#pragma once

#include <stdatomic.h>

enum stop_reason {
	STOP_NONE = 0,
	STOP_SIGNAL,
	STOP_OUTPUT_CLOSED,
	STOP_PLAN_CUT_OFF,
	STOP_PLAN_REFUSED,
	STOP_DEVICE_LOST,
	STOP_ERRORS,
	STOP_FAILED,
};

struct stop {
	atomic_int reason;
};

static inline void stop_request(struct stop *stop, enum stop_reason reason)
{
	int none = STOP_NONE;

	atomic_compare_exchange_strong(&stop->reason, &none, (int)reason);
}

static inline enum stop_reason stop_requested(struct stop *stop)
{
	return (enum stop_reason)atomic_load_explicit(&stop->reason, memory_order_acquire);
}
