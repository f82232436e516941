/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * From events to I/Os: an issue and its completion become a row, with the thread and flags of the entry into the block
 * layer. Events come in order of time. Memory is bounded: beyond a limit the oldest I/O is dropped and counted.
 */
#pragma once

#include "devices.h"
#include "event.h"
#include "rows.h"
#include "table.h"

#include <stdbool.h>

struct pair_counts {
	uint64_t unmatched, in_flight_at_start, in_flight_at_end, unseen, unissued;
	uint64_t issued_again; /* without a requeue event */
	uint64_t requeued, merged, other_ops, empty_flushes, from_issuer, remaps, not_wanted;
	uint64_t impossible_extents; /* events of an extent that ends above 2^62 bytes */
};

struct pairing {
	struct rows *rows;
	struct table queued, in_flight;
	struct pair_devices devices;
	/* Completions are lost silently: each is matched with the newest issue, so that a loss affects one I/O only. */
	bool silent_losses;
	bool equal_ios; /* equal I/Os are in flight together: each of them completed */
	bool any_device; /* also devices that were not named */
	uint64_t first_ns, newest_ns;
	/* Of the capture: rows are of I/Os that end after the one and are submitted up to the other. */
	uint64_t begun_ns, stopped_ns;
	uint64_t losses;
	struct pair_counts counts;
};

int pairing_init(struct pairing *pairing, struct rows *rows);
void pairing_deinit(struct pairing *pairing);

/* Returns 0, -ENOMEM, or -E2BIG beyond MAX_PAIR_DEVICES. */
int pairing_take(struct pairing *pairing, const struct blk_event *event);

/* Events were lost: I/Os in flight may have completed. */
void pairing_note_loss(struct pairing *pairing);

/* I/Os in flight become rows without a latency. */
void pairing_finish(struct pairing *pairing);
