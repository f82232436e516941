/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "hazard.h"

#include <errno.h>

#include "codes.h"
#include "run/memory.h"

#define CELL_SHIFT 12
/* A longer I/O is compared with each one in flight, which costs less than its cells. */
#define MAX_CELLS 256

int hazard_init(struct hazard *hazard, const struct io *ios, unsigned depth)
{
	*hazard = (struct hazard){
		.ios = ios,
		.in_flight = alloc_touched(depth, sizeof(*hazard->in_flight)),
		.position = alloc_touched(depth, sizeof(*hazard->position)),
		.cells = alloc_touched(HAZARD_CELLS, sizeof(*hazard->cells)),
	};
	return hazard->in_flight && hazard->position && hazard->cells ? 0 : -ENOMEM;
}

void hazard_deinit(struct hazard *hazard)
{
	free(hazard->in_flight);
	free(hazard->position);
	free(hazard->cells);
}

static bool has_range(const struct io *io)
{
	return io->op != OP_FLUSH && io->length_bytes > 0;
}

static int64_t first_cell(const struct io *io)
{
	return io->offset_bytes >> CELL_SHIFT;
}

static int64_t last_cell(const struct io *io)
{
	return (io->offset_bytes + io->length_bytes - 1) >> CELL_SHIFT;
}

static bool is_wide(const struct io *io)
{
	return last_cell(io) - first_cell(io) >= MAX_CELLS;
}

static uint16_t *cell(struct hazard *hazard, const struct io *io, int64_t number)
{
	/* Adjacent ranges have adjacent cells, so a long I/O accesses memory in order. */
	return &hazard->cells[(uint64_t)(number + (int64_t)io->target * 0x9e5) % HAZARD_CELLS];
}

/* Adds `by` to the cells of an I/O. Returns whether one of them was in use. */
static bool count_cells(struct hazard *hazard, const struct io *io, int by)
{
	bool shared = false;

	for (int64_t number = first_cell(io); number <= last_cell(io); number++) {
		uint16_t *count = cell(hazard, io, number);

		shared |= *count > 0;
		*count = (uint16_t)(*count + by);
	}
	return shared;
}

/* An unknown latency counts as an overlap in the source. */
static bool ended_before(const struct io *earlier, const struct io *later)
{
	return earlier->captured_latency_ns >= 0 &&
	       earlier->captured_ns + earlier->captured_latency_ns <= later->captured_ns;
}

static bool is_hazard(const struct io *a, const struct io *b)
{
	if (a->target != b->target || (!op_changes_data(a->op) && !op_changes_data(b->op)) || !has_range(b))
		return false;
	if (a->offset_bytes >= b->offset_bytes + b->length_bytes || b->offset_bytes >= a->offset_bytes + a->length_bytes)
		return false;
	return ended_before(a, b) || ended_before(b, a);
}

bool hazard_add(struct hazard *hazard, uint32_t slot)
{
	const struct io *io = &hazard->ios[slot];
	bool found = false, look;

	if (has_range(io)) {
		look = hazard->wide > 0 || is_wide(io);
		if (is_wide(io))
			hazard->wide++;
		else if (count_cells(hazard, io, 1))
			look = true;
		for (uint32_t i = 0; look && !found && i < hazard->count; i++)
			found = is_hazard(io, &hazard->ios[hazard->in_flight[i]]);
	}
	hazard->position[slot] = hazard->count;
	hazard->in_flight[hazard->count++] = slot;
	return found;
}

void hazard_remove(struct hazard *hazard, uint32_t slot)
{
	const struct io *io = &hazard->ios[slot];
	uint32_t last = hazard->in_flight[--hazard->count];

	hazard->in_flight[hazard->position[slot]] = last;
	hazard->position[last] = hazard->position[slot];
	if (!has_range(io))
		return;
	if (is_wide(io))
		hazard->wide--;
	else
		count_cells(hazard, io, -1);
}
