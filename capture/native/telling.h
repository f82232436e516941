/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a capture tells of itself: lines for its parent, and notes beside the rows. */
#ifndef BLKREEL_TELLING_H
#define BLKREEL_TELLING_H

#include "drain.h"
#include "ledger.h"
#include "live.h"
#include "outbox.h"
#include "programs.h"
#include "session.h"
#include "synthetic.h"

#include <stdint.h>

struct session {
	struct session_options *options;
	struct programs programs;
	struct outbox outbox;
	struct drain drain;
	struct ledger ledger;
	struct live *live; /* NULL: nobody watches */
	struct synthetic synthetic;
	uint64_t epoch_ns;
	uint64_t stopped_ns;
	uint64_t in_flight_at_end;
	uint64_t unseen_at_end; /* completed before the end, which no program was run for */
	uint64_t not_own_at_end; /* the same, of others, where only own ones are wanted */
	uint64_t queued_at_end;
};

/* Rows come from now on. Into the rows too: a parent that is killed right now has noted nothing of it. */
void tell_attached(struct session *session);

/* How far it is; left out where the parent does not listen. */
void tell_progress(struct session *session);

/*
 * What the drives did since this was told last; nothing where nobody watches.
 * Where it may wait, it is left out while the parent does not listen, and told
 * with what comes after it.
 */
void tell_live(struct session *session, bool may_wait);

/* The totals: into the rows, where they make them complete, and to the parent. After outbox_close. */
void tell_end(const struct session *session);

#endif
