/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#define BUCKET_COUNT (1u << 16)

int table_init(struct table *table, size_t room)
{
	*table = (struct table){ .room = room };
	table->buckets = calloc(BUCKET_COUNT, sizeof(*table->buckets));
	return table->buckets ? 0 : -ENOMEM;
}

void table_deinit(struct table *table)
{
	if (!table->buckets)
		return;
	while (table->oldest)
		table_remove(table, table->oldest);
	while (table->free) {
		struct pending *entry = table->free;

		table->free = entry->next;
		free(entry);
	}
	free(table->buckets);
	table->buckets = NULL;
}

static struct bucket *bucket_of(const struct table *table, uint32_t device, uint64_t sector, int8_t op)
{
	uint64_t mixed = (sector ^ ((uint64_t)device << 40) ^ ((uint64_t)op << 60)) * 0x9e3779b97f4a7c15ull;

	return &table->buckets[mixed >> 48];
}

static bool has_key(const struct pending *entry, uint32_t device, uint64_t sector, int8_t op)
{
	return entry->sector == sector && entry->device == device && entry->op == op;
}

struct pending *table_add(struct table *table, const struct pending *entry)
{
	struct bucket *bucket = bucket_of(table, entry->device, entry->sector, entry->op);
	struct pending *added = table->free;

	if (added)
		table->free = added->next;
	else
		added = malloc(sizeof(*added));
	if (!added)
		return NULL;
	*added = *entry;
	added->next = NULL;
	added->previous = bucket->last;
	*(bucket->last ? &bucket->last->next : &bucket->first) = added;
	bucket->last = added;
	added->newer = NULL;
	added->older = table->newest;
	*(table->newest ? &table->newest->newer : &table->oldest) = added;
	table->newest = added;
	table->count++;
	return added;
}

static struct pending *find_from(struct pending *entry, uint32_t device, uint64_t sector, int8_t op)
{
	while (entry && !has_key(entry, device, sector, op))
		entry = entry->next;
	return entry;
}

struct pending *table_find(const struct table *table, uint32_t device, uint64_t sector, int8_t op)
{
	return find_from(bucket_of(table, device, sector, op)->first, device, sector, op);
}

struct pending *table_find_next(const struct pending *from)
{
	return find_from(from->next, from->device, from->sector, from->op);
}

struct pending *table_find_newest(const struct table *table, uint32_t device, uint64_t sector, int8_t op)
{
	struct pending *entry = bucket_of(table, device, sector, op)->last;

	while (entry && !has_key(entry, device, sector, op))
		entry = entry->previous;
	return entry;
}

void table_remove(struct table *table, struct pending *entry)
{
	struct bucket *bucket = bucket_of(table, entry->device, entry->sector, entry->op);

	*(entry->previous ? &entry->previous->next : &bucket->first) = entry->next;
	*(entry->next ? &entry->next->previous : &bucket->last) = entry->previous;
	*(entry->older ? &entry->older->newer : &table->oldest) = entry->newer;
	*(entry->newer ? &entry->newer->older : &table->newest) = entry->older;
	entry->next = table->free;
	table->free = entry;
	table->count--;
}
