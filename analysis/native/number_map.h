/* SPDX-License-Identifier: GPL-2.0-or-later */
/* From numbers to the order in which they were first met: 0, 1, 2 .. for rows that are kept elsewhere. */
#ifndef BLKREEL_NUMBER_MAP_H
#define BLKREEL_NUMBER_MAP_H

#include <stddef.h>
#include <stdint.h>

/* slots: open addressing, at most half full. last: most rows are of the number before. */
struct number_map {
	struct number_slot *slots;
	size_t slot_count;
	size_t count;
	int64_t last_number;
	int64_t last_index;
};

void number_map_deinit(struct number_map *map);

/* The index of a number; `count` before the call where it is new. -ENOMEM. */
int64_t number_map_find(struct number_map *map, int64_t number);

static inline int64_t number_map_get(struct number_map *map, int64_t number)
{
	if (map->count && map->last_number == number)
		return map->last_index;
	return number_map_find(map, number);
}

#endif
