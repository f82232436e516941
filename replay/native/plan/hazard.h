/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A hazard: two I/Os in flight over common bytes, of which one had completed before the other began in the source, and
 * at least one is not a read. The contents of these bytes can then differ from the source.
 */
#pragma once

#include <stdint.h>

#include "issue/issuer.h"

#define HAZARD_CELLS (1u << 14)

struct hazard {
	const struct io *ios;
	uint32_t *in_flight; /* slots */
	uint32_t *position;  /* of each slot in in_flight */
	uint32_t count;
	uint32_t wide;   /* I/Os in flight that are too long to count in cells */
	uint16_t *cells; /* I/Os in flight, by a hash of each 4 KiB of their range */
};

/* For slots 0 to depth - 1. Returns 0 or -ENOMEM. */
int hazard_init(struct hazard *hazard, const struct io *ios, unsigned depth);
void hazard_deinit(struct hazard *hazard);

/* Adds the I/O of a slot. Returns whether it is a hazard with an I/O in flight. */
bool hazard_add(struct hazard *hazard, uint32_t slot);

void hazard_remove(struct hazard *hazard, uint32_t slot);
