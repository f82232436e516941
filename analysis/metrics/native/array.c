/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 64

int array_grow(void *items, size_t *capacity, size_t item_bytes)
{
	size_t larger = *capacity ? *capacity * 2 : FIRST_CAPACITY;
	void *old, *new;

	memcpy(&old, items, sizeof(old));
	new = realloc(old, larger * item_bytes);
	if (!new)
		return -ENOMEM;
	memcpy(items, &new, sizeof(new));
	*capacity = larger;
	return 0;
}
