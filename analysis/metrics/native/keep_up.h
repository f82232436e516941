/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How many bytes were written by the time the last write was due. */
#pragma once

#include "number_map.h"

struct millisecond {
	int64_t number;
	int64_t bytes;
};

/* Writes that complete in the millisecond of the last due time, or before, are summed up. Later ones are stored by
 * millisecond, because the last due time is only known at the end. INT64_MIN in last_due_ns: no write yet.
 */
struct keep_up {
	int64_t last_due_ns;
	int64_t reach_ns; /* the last completion */
	int64_t bytes;
	int64_t by_due_bytes;
	struct number_map numbers;
	struct millisecond *rows;
	size_t capacity;
	size_t prune_at; /* number of rows */
};

/* Adds a write with a due time. Returns 0 or -ENOMEM. */
int keep_up_add(struct keep_up *keep_up, int64_t due_ns, int64_t complete_ns, int64_t bytes);
void keep_up_deinit(struct keep_up *keep_up);
