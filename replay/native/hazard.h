/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which I/Os are in flight together over common bytes, though in the source
 * one had ended before the other began: what the drive then does to those
 * bytes is not what it did there. Reads beside reads do no harm.
 */
#ifndef BLKREEL_HAZARD_H
#define BLKREEL_HAZARD_H

#include <stdint.h>

#include "issuer.h"

#define HAZARD_CELLS (1u << 14)

struct hazard {
	const struct io *ios;
	uint32_t *in_flight; /* slots */
	uint32_t *place;     /* of each slot in in_flight */
	uint32_t count;
	uint32_t wide;   /* in flight and too long to be counted cell by cell */
	uint16_t *cells; /* I/Os in flight over the 4 KiB pieces of space that fall together here */
};

/* For I/Os of slots 0 to depth - 1. */
int hazard_init(struct hazard *hazard, const struct io *ios, unsigned depth);

/* The I/O of a slot goes out. True: it is a hazard with one that is in flight. */
bool hazard_add(struct hazard *hazard, uint32_t slot);

void hazard_remove(struct hazard *hazard, uint32_t slot);

#endif
