/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "number_map.h"

#include <errno.h>
#include <stdlib.h>

#include "array.h"

#define FIRST_SLOTS 64

static size_t slot_of(const struct number_map *map, int64_t number)
{
	size_t mask = map->slot_count - 1, slot = ((uint64_t)number * 0x9E3779B97F4A7C15u >> 20) & mask;

	while (map->slots[slot] && map->numbers[map->slots[slot] - 1] != number)
		slot = (slot + 1) & mask;
	return slot;
}

static int make_room(struct number_map *map)
{
	uint32_t *slots;

	if (map->count == UINT32_MAX ||
	    (map->count == map->capacity && array_grow(&map->numbers, &map->capacity, sizeof(*map->numbers))))
		return -ENOMEM;
	if (map->count * 2 < map->slot_count)
		return 0;
	slots = calloc(map->slot_count ? map->slot_count * 2 : FIRST_SLOTS, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(map->slots);
	map->slots = slots;
	map->slot_count = map->slot_count ? map->slot_count * 2 : FIRST_SLOTS;
	for (size_t index = 0; index < map->count; index++)
		slots[slot_of(map, map->numbers[index])] = (uint32_t)index + 1;
	return 0;
}

void number_map_deinit(struct number_map *map)
{
	free(map->slots);
	free(map->numbers);
}

int64_t number_map_find(struct number_map *map, int64_t number)
{
	size_t slot;

	if (make_room(map))
		return -ENOMEM;
	slot = slot_of(map, number);
	if (!map->slots[slot]) {
		map->numbers[map->count] = number;
		map->slots[slot] = (uint32_t)++map->count;
	}
	map->last_number = number;
	map->last_index = (int64_t)map->slots[slot] - 1;
	return map->last_index;
}
