/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A thread that only naps, on another processor than the one that issues.
 * What holds both up at once is not other work on one processor: the process
 * was stopped, or the machine stood still.
 */
#ifndef BLKREEL_WITNESS_H
#define BLKREEL_WITNESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WITNESS_GAPS 64u /* a power of two: the last so many are kept */

struct witness_gap {
	_Atomic int64_t from_ns, to_ns;
};

/* Times on CLOCK_MONOTONIC. */
struct witness {
	_Atomic int64_t beat_ns; /* when it was awake last */
	atomic_uint gap_count;
	struct witness_gap gaps[WITNESS_GAPS];
	_Atomic int64_t continued; /* how often the process was let go on after a stop */
	/* From when it was awake last to when it learnt of it, for which it may have to wait on a busy machine. */
	struct witness_gap stops[WITNESS_GAPS];
	_Atomic int64_t suspended_ns; /* the machine slept: no clock of a run shows it */
};

/* Starts it. The thread that calls must have the signals blocked that are for others; SIGCONT is for the witness. */
int witness_start(struct witness *witness);

/* How much of a span it did not live through either. */
int64_t witness_missed_ns(const struct witness *witness, int64_t from_ns, int64_t to_ns);

/* Whether the process may have been let go on within a span. */
bool witness_continued(const struct witness *witness, int64_t from_ns, int64_t to_ns);

#endif
