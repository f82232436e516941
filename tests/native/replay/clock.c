/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A sleep before a deadline never reaches into the spin window and never exceeds the limit. */
#include "check.h"
#include "run/clock.h"

static uint64_t state = 1;

static int64_t some(int64_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (int64_t)(state >> 33) % below;
}

static void test_never_past_the_window(void)
{
	for (int i = 0; i < 200000; i++) {
		int64_t deadline = some(NS_PER_S), now = some(NS_PER_S), spin = some(200000);
		int64_t longest = 1 + some(50 * NS_PER_MS);
		int64_t sleep = sleep_before(deadline, now, spin, longest);

		CHECK(sleep >= 0);
		CHECK(sleep <= longest);
		if (sleep > 0)
			CHECK(now + sleep <= deadline - spin);
		else
			CHECK(now >= deadline - spin);
	}
}

static void test_by_hand(void)
{
	CHECK_EQUAL(sleep_before(1000, 0, 100, 5000), 900);
	CHECK_EQUAL(sleep_before(1000, 0, 100, 500), 500);
	CHECK_EQUAL(sleep_before(1000, 900, 100, 500), 0);
	CHECK_EQUAL(sleep_before(1000, 2000, 100, 500), 0);
	/* A week into a run: no truncation to 32 bits. */
	CHECK_EQUAL(sleep_before(604800 * NS_PER_S + 10, 604800 * NS_PER_S, 3, INT64_MAX), 7);
}

int main(void)
{
	test_by_hand();
	test_never_past_the_window();
	return 0;
}
