/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The devices of a recording, in the order of their first event: its place is the number in a row. */
#pragma once

#include "codes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_PAIR_DEVICES (INT16_MAX + 1) /* a row's device is an int16 */

struct pair_device {
	uint32_t number; /* as in events */
	bool bio_based; /* no requests: from entry to completion */
	uint64_t queued, issued, completed; /* events */
	uint64_t seen[OP_COUNT]; /* I/Os completed from begun_ns up to stopped_ns */
};

struct device_key {
	uint32_t number;
	uint32_t at; /* in items */
};

/* All zero: empty. */
struct pair_devices {
	struct pair_device *items;
	struct device_key *keys; /* by number */
	size_t count, capacity;
};

void pair_devices_deinit(struct pair_devices *devices);

/* NULL if there is none of that number. Valid until the next addition. */
struct pair_device *pair_devices_find(const struct pair_devices *devices, uint32_t number);

/* Adds a device that is not there yet. Returns 0, -ENOMEM, or -E2BIG beyond MAX_PAIR_DEVICES. */
int pair_devices_add(struct pair_devices *devices, uint32_t number, bool bio_based);
