/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A run: its lanes spread over threads that start at one moment, and what they came to. */
#ifndef BLKREEL_RUN_H
#define BLKREEL_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "payload.h"
#include "stop.h"
#include "target.h"

#define MAX_LANES 64
#define MAX_THREADS 64
#define MAX_DEPTH 16384 /* of all lanes together */

struct lane_options {
	int fd; /* of its plan */
	unsigned depth;
	unsigned thread;
	bool background; /* it ends when all that are not have ended */
};

struct run_options {
	const struct target *targets;
	unsigned target_count;
	struct lane_options lanes[MAX_LANES];
	unsigned lane_count;
	unsigned max_errors;
	struct payload_options payload; /* of all threads together */
	int64_t spin_ns;
	int64_t stop_ns; /* after the start; no row is issued later. INT64_MAX: whenever */
	int cpu; /* of the first thread; -1: the last of those allowed */
	bool realtime;
	bool plain;
	bool polled;
	bool null_targets;
	struct drive *drives; /* for each null target, what it simulates; NULL: nothing */
	bool virtual_clock;   /* the drives', which does not wait */
	int64_t null_fail_row;
	int null_fail_errno;
};

/* Carries it out, records on stdout. Returns an exit code, having said on stderr what went wrong. */
int run_replay(const struct run_options *options, struct stop *stop);

#endif
