/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A run: spreads lanes over threads that start at the same time, and adds up their totals. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "host.h"
#include "stop.h"
#include "target/payload.h"
#include "target/target.h"

#define MAX_LANES 64
#define MAX_THREADS 64
#define MAX_DEPTH 16384 /* of all lanes together */

struct lane_options {
	int fd; /* of its plan */
	unsigned depth;
	unsigned thread;
	bool background; /* ends when all foreground lanes have ended */
	int64_t start_ns; /* time of the earliest issue */
	unsigned processors; /* that rows with processor time share; 0: as many as they need */
};

struct run_options {
	const struct target *targets;
	unsigned target_count;
	struct lane_options lanes[MAX_LANES];
	unsigned lane_count;
	struct payload_options payload; /* of all threads together */
	int64_t turnaround_ns;         /* of the issuing threads: schedule.h */
	int64_t stop_ns;               /* after the start; no row is issued later. INT64_MAX: no limit */
	const struct host_cpus *cpus;
	bool realtime;
	bool plain;
	bool polled;
	bool nil_targets;
	struct drive *drives; /* simulated, one for each nil target; NULL: none */
	bool virtual_clock;   /* of the simulated drives */
};

/* Runs the plans and writes records to stdout. Returns an exit code, after an error message if it is not 0. */
int run_replay(const struct run_options *options, struct stop *stop);
