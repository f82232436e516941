/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory without page faults during the run, which would make rows late. */
#pragma once

#include <stdbool.h>
#include <stdlib.h>

/* False on a virtual clock, which page faults do not make late. (host.c) */
extern bool memory_touches;

/* Returns zeroed memory with all its pages touched, or NULL. */
static inline void *alloc_touched(size_t count, size_t item_bytes)
{
	volatile char *bytes = calloc(count, item_bytes);

	/* Volatile, because compilers remove a memset to 0 after calloc. */
	for (size_t at = 0; memory_touches && bytes && at < count * item_bytes; at += 4096)
		bytes[at] = 0;
	return (void *)bytes;
}
