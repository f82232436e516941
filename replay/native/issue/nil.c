/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The nil target completes every row at once, so a run measures the engine alone. */
#include <stdlib.h>

#include "issuer.h"
#include "run/clock.h"
#include "error.h"

struct nil {
	struct issuer issuer;
	unsigned depth, first, count;
	uint32_t done[]; /* ring of completed and not reaped slots, in the order of their submission */
};

static void nil_queue(struct issuer *issuer, struct io *io, uint32_t slot)
{
	struct nil *nil = (struct nil *)issuer;

	io->status = 0;
	io->pending = 0;
	nil->done[(nil->first + nil->count++) % nil->depth] = slot;
}

static int nil_submit(struct issuer *issuer, int64_t wait_ns)
{
	if (wait_ns > 0 && !((struct nil *)issuer)->count)
		sleep_ns(wait_ns);
	return 0;
}

static unsigned nil_reap(struct issuer *issuer, struct io *ios, uint32_t *slots, unsigned room)
{
	struct nil *nil = (struct nil *)issuer;
	unsigned count = 0;

	(void)ios;
	for (; nil->count && count < room; nil->count--) {
		slots[count++] = nil->done[nil->first];
		nil->first = (nil->first + 1) % nil->depth;
	}
	return count;
}

static const char *nil_features(struct issuer *issuer)
{
	(void)issuer;
	return "{\"nil\": true}";
}

static void nil_deinit(struct issuer *issuer)
{
	free(issuer);
}

struct issuer *nil_issuer(const struct issuer_options *options)
{
	struct nil *nil = calloc(1, sizeof(*nil) + options->depth * sizeof(*nil->done));

	if (!nil) {
		report_error(NULL, "cannot start the nil target: out of memory");
		return NULL;
	}
	nil->issuer = (struct issuer){ nil_queue, nil_submit, NULL, nil_reap, nil_features, NULL, nil_deinit };
	nil->depth = options->depth;
	return &nil->issuer;
}
