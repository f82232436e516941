/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * From events to I/Os: an issue and its completion become a row, with what the entry into the block layer told.
 * Events come in order of time. Memory is bounded: of what waits too long, the oldest is let go and counted.
 */
#ifndef BLKREEL_BLKTRACE_PAIR_H
#define BLKREEL_BLKTRACE_PAIR_H

#include "blktrace_event.h"
#include "blktrace_rows.h"
#include "blktrace_table.h"

#include <stdbool.h>

#define MAX_PAIR_DEVICES 256

struct pair_device {
	uint32_t number; /* as in events */
	bool bio_based; /* no requests: from entry to completion */
	uint64_t queued, issued, completed; /* events */
	uint64_t seen[OP_COUNT]; /* I/Os completed up to stopped_ns */
};

struct pair_counts {
	uint64_t unmatched, in_flight_at_start, in_flight_at_end, unseen, unissued;
	uint64_t requeued, merged, other_ops, empty_flushes, from_issuer, remaps, not_wanted;
};

struct pairing {
	struct rows *rows;
	struct table queued, in_flight;
	struct pair_device devices[MAX_PAIR_DEVICES];
	size_t device_count;
	/*
	 * Completions go missing without a word: each goes to the newest issue, so that one whose own is missing
	 * does not take another's.
	 */
	bool silent_losses;
	bool any_device; /* take those that appear, not only those given */
	uint64_t first_ns, newest_ns;
	uint64_t stopped_ns;
	uint64_t losses;
	struct pair_counts counts;
};

int pairing_open(struct pairing *pairing, struct rows *rows);
void pairing_close(struct pairing *pairing);

/* Returns 0, or a negative errno where memory is short. */
int pairing_take(struct pairing *pairing, const struct blk_event *event);

/* Events were lost here: what was in flight may have completed unseen. */
void pairing_note_loss(struct pairing *pairing);

/* What has not completed becomes rows without a latency. */
void pairing_finish(struct pairing *pairing);

#endif
