/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How writes lie on blocks that are larger than a sector, such as the mapping units of a drive. */
#pragma once

#include <stdint.h>

#include "metrics.h"

#define FIRST_BLOCK_BITS 12

/* first_byte: of the first write of this part, last_byte: of the last write; -1: none yet. */
struct write_ends {
	int64_t first_byte;
	int64_t last_byte;
};

struct alignment {
	int64_t writes;
	int64_t unaligned[ALIGNMENT_BLOCKS];
	int64_t repeated[ALIGNMENT_BLOCKS];
	struct write_ends drives[HEAT_DEVICES];
};

static inline void alignment_init(struct alignment *alignment)
{
	*alignment = (struct alignment){ 0 };
	for (int device = 0; device < HEAT_DEVICES; device++)
		alignment->drives[device] = (struct write_ends){ -1, -1 };
}

static inline void alignment_add(struct alignment *alignment, int16_t device, int64_t offset, int64_t bytes)
{
	struct write_ends *ends;

	alignment->writes++;
	for (int i = 0; i < ALIGNMENT_BLOCKS; i++)
		alignment->unaligned[i] += ((offset | bytes) & ((1ll << (FIRST_BLOCK_BITS + i)) - 1)) != 0;
	if (device < 0 || device >= HEAT_DEVICES || !bytes)
		return;
	ends = &alignment->drives[device];
	if (ends->first_byte < 0)
		ends->first_byte = offset;
	else
		for (int i = 0; i < ALIGNMENT_BLOCKS; i++)
			alignment->repeated[i] += offset >> (FIRST_BLOCK_BITS + i) ==
						  ends->last_byte >> (FIRST_BLOCK_BITS + i);
	ends->last_byte = offset + bytes - 1;
}
