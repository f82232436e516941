/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Entry into the block layer, in the context of the thread that causes the I/O: later events run in any context. */
#ifndef BLKREEL_ENTRY_H
#define BLKREEL_ENTRY_H

#include "files.h"
#include "issuer.h"
#include "maps.h"
#include "request.h"
#include "threads.h"

/* Whether the submitting thread waits for this bio. */
static __always_inline bool is_waited_for(struct bio *bio)
{
	struct iomap_dio *direct;
	__u64 end;

	if (!bio)
		return false;
	end = (__u64)READ(bio, bi_end_io);
	if (config.end_of_waited_bio && end == config.end_of_waited_bio)
		return true;
	if (!config.end_of_direct_io || end != config.end_of_direct_io)
		return false;
	direct = BPF_CORE_READ(bio, bi_private);
	return BPF_CORE_READ(direct, wait_for_completion);
}

/* Records the thread, the completion that it waited for, and with files the file. The slot must have op and flags. */
static __always_inline void enter_thread(struct slot *slot, struct bio *bio)
{
	const struct issuer *limited = limited_issuer(bio);
	struct issuer issuer = limited ? *limited : current_issuer();

	if (limited && slot->start_ns)
		slot->start_ns = issuer.entered_ns;
	slot->tid = issuer.tid;
	slot->cpu = issuer.cpu;
	slot->waited_submit_ns = issuer.waited_submit_ns;
	slot->waited_complete_ns = issuer.waited_complete_ns;
	slot->blocked_ns = issuer.blocked_ns;
	slot->flags |= issuer.flags;
	if (config.own && !config.sees_limiter && is_of_own_group(bio, slot, issuer.flags & FLAG_OWN))
		slot->flags |= FLAG_OWN;
	slot->waited_for = is_waited_for(bio);
	if (config.files)
		attribute(slot, bio, limited != NULL);
	slot->skipped = config.own_only && !(slot->flags & FLAG_OWN);
	slot->used = 1;
}

#endif
