/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the decoder counted, as JSON. */
#pragma once

#include "input.h"
#include "merge.h"
#include "pair.h"
#include "threads.h"

#include <stdio.h>

#define MAX_LOSSES 256

/* One moment on two clocks. */
struct clock_pair {
	uint64_t monotonic_ns, realtime_ns;
};

struct decoded {
	struct merge merge;
	struct pairing pairing;
	struct rows rows;
	struct loss losses[MAX_LOSSES];
	size_t loss_count;
	uint64_t lost;
	struct clock_pair clock_pair; /* the first in the stream */
	uint64_t messages;
	struct threads threads;
};

void report_attached(const struct decoded *decoded, FILE *file);
void report_progress(const struct decoded *decoded, FILE *file);

/* The totals: the object of the end block, or with_note the last line of stdout. */
void report_end(const struct decoded *decoded, FILE *file, bool with_note);
