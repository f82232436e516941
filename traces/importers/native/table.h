/* SPDX-License-Identifier: GPL-2.0-or-later */
/* I/Os that wait for an event, by device, sector and operation, oldest first. The caller keeps to `room`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pending {
	struct pending *next, *previous; /* in its bucket */
	struct pending *newer, *older; /* of the whole table */
	uint64_t sector; /* the key, with device and op */
	uint32_t device;
	int8_t op;
	/* set at entry into the block layer */
	uint32_t flags;
	int32_t tid;
	uint64_t queued_ns; /* TIME_UNSEEN: no entry seen */
	/* set at issue */
	uint64_t submit_ns;
	uint64_t first_sector;
	uint32_t length_bytes;
	uint32_t remaining_bytes;
	uint32_t cpu;
	int16_t status;
	uint64_t losses_before; /* number of losses before its issue */
	bool repeats; /* issued while an equal one was in flight, without an entry into the block layer */
};

struct bucket {
	struct pending *first, *last;
};

struct table {
	struct bucket *buckets;
	struct pending *oldest, *newest;
	struct pending *free;
	size_t count;
	size_t room;
};

int table_init(struct table *table, size_t room);
void table_deinit(struct table *table);

/* Adds at the end of those with the same key, a copy of `entry`. NULL if there is no memory. */
struct pending *table_add(struct table *table, const struct pending *entry);

/* The first with that key, or after `from` the next; NULL if there is none. */
struct pending *table_find(const struct table *table, uint32_t device, uint64_t sector, int8_t op);
struct pending *table_find_next(const struct pending *from);
struct pending *table_find_newest(const struct table *table, uint32_t device, uint64_t sector, int8_t op);

/* Removes an entry, which stays readable until the next table_add(). */
void table_remove(struct table *table, struct pending *entry);
