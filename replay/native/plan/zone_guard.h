/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One row in flight at most that changes a zone: a zoned drive takes a write only at the write pointer, and the kernel
 * may hand a row that it cannot take at once to another thread, behind a later one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "target/target.h"

/* The zones of one target. */
struct guarded_zones {
	bool *busy; /* NULL: the target has no zones */
	uint32_t busy_count;
	bool all_busy; /* all zones are being reset */
};

struct zone_guard {
	const struct target *targets;
	struct guarded_zones zones[MAX_TARGETS];
};

/* Returns 0 or -ENOMEM. */
int zone_guard_init(struct zone_guard *guard, const struct target *targets, unsigned target_count);
void zone_guard_deinit(struct zone_guard *guard);

/* Whether no row in flight changes a zone that this one changes. */
bool zone_guard_allows(const struct zone_guard *guard, int16_t target, int op, int64_t offset_bytes);

/* A row of that kind is in flight, or no longer. */
void zone_guard_set(struct zone_guard *guard, int16_t target, int op, int64_t offset_bytes, bool in_flight);
