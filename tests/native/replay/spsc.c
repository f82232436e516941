/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The ring loses, duplicates and reorders nothing, and reports full and empty. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>

#include "check.h"
#include "plan/spsc.h"

#define ITEMS 300000

static struct spsc ring;

static void *produce(void *argument)
{
	(void)argument;
	for (uintptr_t i = 1; i <= ITEMS; i++)
		while (!spsc_put(&ring, (void *)i))
			sched_yield();
	return NULL;
}

static void test_bounds(void)
{
	static struct spsc empty;
	char items[SPSC_SLOTS + 1];

	CHECK(!spsc_take(&empty));
	for (unsigned i = 0; i < SPSC_SLOTS; i++)
		CHECK(spsc_put(&empty, &items[i]));
	CHECK(!spsc_put(&empty, &items[SPSC_SLOTS]));
	CHECK_EQUAL(spsc_count(&empty), SPSC_SLOTS);
	for (unsigned i = 0; i < SPSC_SLOTS; i++)
		CHECK(spsc_take(&empty) == &items[i]);
	CHECK(!spsc_take(&empty));
}

static void test_wraps_around(void)
{
	/* The unsigned counts overflow in a long run. */
	static struct spsc old;
	int item;

	atomic_store(&old.head, UINT32_MAX - 1);
	atomic_store(&old.tail, UINT32_MAX - 1);
	for (int i = 0; i < 8; i++) {
		CHECK(spsc_put(&old, &item));
		CHECK_EQUAL(spsc_count(&old), 1);
		CHECK(spsc_take(&old) == &item);
	}
}

static void test_two_threads(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, produce, NULL));
	for (uintptr_t wanted = 1; wanted <= ITEMS; wanted++) {
		void *item;

		while (!(item = spsc_take(&ring)))
			sched_yield();
		CHECK_EQUAL((intmax_t)(uintptr_t)item, (intmax_t)wanted);
	}
	CHECK(!spsc_take(&ring));
	pthread_join(thread, NULL);
}

int main(void)
{
	test_bounds();
	test_wraps_around();
	test_two_threads();
	return 0;
}
