/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A lock-free ring of pointers between one producer and one consumer thread. It makes no system calls, because the
 * issuing thread at one end must never wait for the other.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define SPSC_SLOTS 64u /* a power of two, more than any ring holds */

struct spsc {
	_Alignas(64) atomic_uint head; /* next to take; written by the consumer */
	_Alignas(64) atomic_uint tail; /* next to put; written by the producer */
	_Alignas(64) void *slots[SPSC_SLOTS];
};

/* False when full. */
static inline bool spsc_put(struct spsc *ring, void *item)
{
	unsigned tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	if (tail - atomic_load_explicit(&ring->head, memory_order_acquire) == SPSC_SLOTS)
		return false;
	ring->slots[tail % SPSC_SLOTS] = item;
	atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
	return true;
}

/* NULL when empty. */
static inline void *spsc_take(struct spsc *ring)
{
	unsigned head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	void *item;

	if (atomic_load_explicit(&ring->tail, memory_order_acquire) == head)
		return NULL;
	item = ring->slots[head % SPSC_SLOTS];
	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
	return item;
}

static inline unsigned spsc_count(struct spsc *ring)
{
	unsigned head = atomic_load_explicit(&ring->head, memory_order_acquire);

	return atomic_load_explicit(&ring->tail, memory_order_acquire) - head;
}
