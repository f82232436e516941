/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Maps numbers to 0, 1, 2 ... in the order of their first occurrence. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct number_map {
	uint32_t *slots; /* index plus 1, 0 if free: open addressing, at most half full */
	size_t slot_count;
	int64_t *numbers; /* by index */
	size_t count;
	size_t capacity;
	int64_t last_number; /* mostly the next one too */
	int64_t last_index;
};

void number_map_deinit(struct number_map *map);

/* Returns the index of a number, which is the previous `count` if it is new, or -ENOMEM. */
int64_t number_map_find(struct number_map *map, int64_t number);

static inline int64_t number_map_get(struct number_map *map, int64_t number)
{
	if (map->count && map->last_number == number)
		return map->last_index;
	return number_map_find(map, number);
}
