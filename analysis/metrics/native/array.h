/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Growing arrays. */
#pragma once

#include <stddef.h>

/*
 * Doubles the capacity of the array at *items; new items are not set, so that their pages take no memory before they are
 * used. Returns 0 or -ENOMEM. Not inline, because that would slow the loop over rows by 4 %.
 */
int array_grow(void *items, size_t *capacity, size_t item_bytes);
