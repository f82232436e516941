/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The null target: every row completes at once, so what a run takes is the engine's own. It can also fail on request. */
#include <stdlib.h>

#include "clock.h"
#include "issuer.h"
#include "message.h"

struct null {
	struct issuer issuer;
	int64_t fail_row;
	int fail_errno;
	unsigned count;
	uint32_t *done; /* room for every row that may be outstanding */
};

static void null_queue(struct issuer *issuer, struct io *io, uint32_t slot)
{
	struct null *null = (struct null *)issuer;
	bool fails = null->fail_row >= 0 && io->source_row >= null->fail_row;

	io->status = fails ? -null->fail_errno : 0;
	io->pending = 0;
	null->done[null->count++] = slot;
}

static int null_submit(struct issuer *issuer, int64_t wait_ns)
{
	struct null *null = (struct null *)issuer;

	if (wait_ns > 0 && !null->count)
		sleep_ns(wait_ns);
	return 0;
}

static unsigned null_reap(struct issuer *issuer, struct io *ios, uint32_t *slots, unsigned room)
{
	struct null *null = (struct null *)issuer;
	unsigned count = 0;

	(void)ios;
	while (null->count && count < room)
		slots[count++] = null->done[--null->count];
	return count;
}

static const char *null_features(struct issuer *issuer)
{
	(void)issuer;
	return "{\"null\": true}";
}

static void null_release(struct issuer *issuer)
{
	(void)issuer;
}

struct issuer *null_issuer(const struct issuer_options *options)
{
	struct null *null = calloc(1, sizeof(*null));

	if (null)
		null->done = calloc(options->depth, sizeof(*null->done));
	if (!null || !null->done) {
		complain("no memory for the null target");
		return NULL;
	}
	null->issuer = (struct issuer){ null_queue, null_submit, null_reap, null_features, null_release };
	null->fail_row = options->null_fail_row;
	null->fail_errno = options->null_fail_errno;
	return &null->issuer;
}
