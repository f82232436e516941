/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The completions that the steps of a flush wait for. A write with flushes
 * around it goes to the drive in up to three requests, each issued when the
 * previous one is complete, and a queue has one flush in flight at a time. So
 * the later steps do not wait for what the thread had waited for at entry.
 */
#pragma once

#include "records.h"

/* A completed request; complete_ns 0: unknown. */
struct step {
	__u64 submit_ns;
	__u64 complete_ns;
};

static __always_inline struct step step_of(const struct slot *slot)
{
	return (struct step){ .submit_ns = slot->submit_ns, .complete_ns = slot->complete_ns };
}

static __always_inline void wait_for_newer(struct slot *slot, const struct step *step, __u64 entered_ns)
{
	if (!entered_ns || step->complete_ns < entered_ns || step->complete_ns <= slot->waited_complete_ns)
		return;
	slot->waited_submit_ns = step->submit_ns;
	slot->waited_complete_ns = step->complete_ns;
	slot->flags &= ~FLAG_INHERITED;
}

/* A flush request: `data` is the request that it serves, `last` the previous flush of the queue. */
static __always_inline void flush_waits(struct slot *slot, const struct slot *data, const struct step *last)
{
	struct step written = step_of(data);

	wait_for_newer(slot, last, data->start_ns);
	/* Its data is complete already: this is the flush after it. */
	wait_for_newer(slot, &written, data->start_ns);
}

/* The data of a write with a flush before it. */
static __always_inline void data_waits(struct slot *slot, const struct slot *flush)
{
	struct step flushed;

	if (!flush)
		return;
	flushed = step_of(flush);
	wait_for_newer(slot, &flushed, slot->start_ns);
}
