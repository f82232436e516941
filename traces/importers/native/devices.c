/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "devices.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 16

void pair_devices_deinit(struct pair_devices *devices)
{
	free(devices->items);
	free(devices->keys);
	*devices = (struct pair_devices){ 0 };
}

/* The first key that is not below `number`. */
static size_t place_of_key(const struct pair_devices *devices, uint32_t number)
{
	size_t low = 0, high = devices->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (devices->keys[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct pair_device *pair_devices_find(const struct pair_devices *devices, uint32_t number)
{
	size_t at = place_of_key(devices, number);

	return at < devices->count && devices->keys[at].number == number ? &devices->items[devices->keys[at].at] : NULL;
}

static int grow(struct pair_devices *devices)
{
	size_t capacity = devices->capacity ? 2 * devices->capacity : FIRST_CAPACITY;
	struct pair_device *items = realloc(devices->items, capacity * sizeof(*items));
	struct device_key *keys;

	if (!items)
		return -ENOMEM;
	devices->items = items;
	keys = realloc(devices->keys, capacity * sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	devices->keys = keys;
	devices->capacity = capacity;
	return 0;
}

int pair_devices_add(struct pair_devices *devices, uint32_t number, bool bio_based)
{
	size_t at = place_of_key(devices, number);
	int err;

	if (devices->count == MAX_PAIR_DEVICES)
		return -E2BIG;
	err = devices->count == devices->capacity ? grow(devices) : 0;
	if (err)
		return err;
	memmove(&devices->keys[at + 1], &devices->keys[at], (devices->count - at) * sizeof(*devices->keys));
	devices->keys[at] = (struct device_key){ .number = number, .at = (uint32_t)devices->count };
	devices->items[devices->count++] = (struct pair_device){ .number = number, .bio_based = bio_based };
	return 0;
}
