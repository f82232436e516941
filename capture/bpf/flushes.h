/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the steps of a flush wait for. A write with flushes around it goes to
 * the drive in up to three requests, each issued when the one before it is
 * done, and a queue has one flush under way at a time. Who asked for it has
 * entered long before, so what that thread had waited for then is not what
 * held up the later steps.
 */
#ifndef BLKREEL_FLUSHES_H
#define BLKREEL_FLUSHES_H

#include "records.h"

/* A request that is done; complete_ns 0: none is known. */
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

/* A flush request: `data` is what it runs for, `last` the queue's flush before it. */
static __always_inline void flush_waits(struct slot *slot, const struct slot *data, const struct step *last)
{
	struct step written = step_of(data);

	wait_for_newer(slot, last, data->start_ns);
	/* Its data is done already: this is the flush behind it. */
	wait_for_newer(slot, &written, data->start_ns);
}

/* The data of a write that wants a flush before it. */
static __always_inline void data_waits(struct slot *slot, const struct slot *flush)
{
	struct step flushed;

	if (!flush)
		return;
	flushed = step_of(flush);
	wait_for_newer(slot, &flushed, slot->start_ns);
}

#endif
