/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Why a run ends before its plan does. The first reason stays; any thread or the signal handler may give it. */
#ifndef BLKREEL_STOP_H
#define BLKREEL_STOP_H

#include <stdatomic.h>
#include <stdbool.h>

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

static inline void stop_ask(struct stop *stop, enum stop_reason reason)
{
	int none = STOP_NONE;

	atomic_compare_exchange_strong(&stop->reason, &none, reason);
}

static inline enum stop_reason stop_asked(struct stop *stop)
{
	return atomic_load_explicit(&stop->reason, memory_order_acquire);
}

#endif
