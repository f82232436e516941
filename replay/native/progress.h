/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How far the run is: written by the issuing thread, read by the one that writes the records. */
#ifndef BLKREEL_PROGRESS_H
#define BLKREEL_PROGRESS_H

#include <stdatomic.h>
#include <stdint.h>

struct progress {
	atomic_llong start_monotonic_ns; /* 0: not set yet */
	atomic_llong elapsed_ns;
	atomic_llong submitted;
	atomic_llong completed;
	atomic_llong errors;
	atomic_llong outstanding;
	atomic_llong max_lateness_ns;
};

static inline void progress_set(atomic_llong *value, int64_t to)
{
	atomic_store_explicit(value, to, memory_order_relaxed);
}

static inline long long progress_get(atomic_llong *value)
{
	return atomic_load_explicit(value, memory_order_relaxed);
}

#endif
