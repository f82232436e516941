/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Binary heaps in arrays, whose items[0] is the first by is_before(context, a, b). */
#pragma once

#include <stddef.h>

/* Defines NAME_push, which adds an item to `count` others, and NAME_replace, which puts it in place of the first. */
#define DEFINE_HEAP(name, item_type, context_type, is_before)                                                          \
	static inline void name##_push(context_type context, item_type *items, size_t count, item_type item)          \
	{                                                                                                              \
		for (; count && is_before(context, item, items[(count - 1) / 2]); count = (count - 1) / 2)             \
			items[count] = items[(count - 1) / 2];                                                         \
		items[count] = item;                                                                                   \
	}                                                                                                              \
                                                                                                                       \
	static inline void name##_replace(context_type context, item_type *items, size_t count, item_type item)       \
	{                                                                                                              \
		size_t at = 0;                                                                                         \
                                                                                                                       \
		for (size_t child = 1; child < count; child = 2 * at + 1) {                                            \
			child += child + 1 < count && is_before(context, items[child + 1], items[child]);              \
			if (!is_before(context, items[child], item))                                                   \
				break;                                                                                 \
			items[at] = items[child];                                                                      \
			at = child;                                                                                    \
		}                                                                                                      \
		items[at] = item;                                                                                      \
	}
