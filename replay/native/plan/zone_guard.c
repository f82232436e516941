/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "zone_guard.h"

#include <errno.h>
#include <stdlib.h>

int zone_guard_init(struct zone_guard *guard, const struct target *targets, unsigned target_count)
{
	guard->targets = targets;
	for (unsigned i = 0; i < target_count; i++) {
		const struct target *target = &targets[i];

		if (!target->zone_bytes)
			continue;
		guard->zones[i].busy = calloc((size_t)(target->size_bytes / target->zone_bytes) + 1,
					      sizeof(*guard->zones[i].busy));
		if (!guard->zones[i].busy)
			return -ENOMEM;
	}
	return 0;
}

void zone_guard_deinit(struct zone_guard *guard)
{
	for (unsigned i = 0; i < MAX_TARGETS; i++)
		free(guard->zones[i].busy);
}

static bool changes_zone(int op)
{
	return op_is_write(op) || op == OP_WRITE_ZEROES || op_is_zone_management(op);
}

bool zone_guard_allows(const struct zone_guard *guard, int16_t target, int op, int64_t offset_bytes)
{
	const struct guarded_zones *zones = &guard->zones[target];

	if (!zones->busy || !changes_zone(op))
		return true;
	if (zones->all_busy)
		return false;
	return op == OP_ZONE_RESET_ALL ? !zones->busy_count :
	       !zones->busy[offset_bytes / guard->targets[target].zone_bytes];
}

void zone_guard_set(struct zone_guard *guard, int16_t target, int op, int64_t offset_bytes, bool in_flight)
{
	struct guarded_zones *zones = &guard->zones[target];

	if (!zones->busy || !changes_zone(op))
		return;
	if (op == OP_ZONE_RESET_ALL) {
		zones->all_busy = in_flight;
		return;
	}
	zones->busy[offset_bytes / guard->targets[target].zone_bytes] = in_flight;
	zones->busy_count += in_flight ? 1u : UINT32_MAX;
}
