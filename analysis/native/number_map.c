/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "number_map.h"

#include <errno.h>
#include <stdlib.h>

/* index: one more than it is, 0 in a free slot. */
struct number_slot {
	int64_t number;
	int64_t index;
};

#define FIRST_SLOTS 64

static size_t slot_of(const struct number_slot *slots, size_t slot_count, int64_t number)
{
	size_t slot = ((uint64_t)number * 0x9E3779B97F4A7C15u >> 20) & (slot_count - 1);

	while (slots[slot].index && slots[slot].number != number)
		slot = (slot + 1) & (slot_count - 1);
	return slot;
}

static int make_room(struct number_map *map)
{
	size_t slot_count = map->slot_count ? map->slot_count * 2 : FIRST_SLOTS;
	struct number_slot *slots;

	if (map->count * 2 < map->slot_count)
		return 0;
	slots = calloc(slot_count, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < map->slot_count; i++) {
		if (map->slots[i].index)
			slots[slot_of(slots, slot_count, map->slots[i].number)] = map->slots[i];
	}
	free(map->slots);
	map->slots = slots;
	map->slot_count = slot_count;
	return 0;
}

void number_map_deinit(struct number_map *map)
{
	free(map->slots);
}

int64_t number_map_find(struct number_map *map, int64_t number)
{
	struct number_slot *slot;

	if (make_room(map))
		return -ENOMEM;
	slot = &map->slots[slot_of(map->slots, map->slot_count, number)];
	if (!slot->index) {
		slot->number = number;
		slot->index = ++map->count;
	}
	map->last_number = number;
	map->last_index = slot->index - 1;
	return map->last_index;
}
