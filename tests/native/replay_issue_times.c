/* SPDX-License-Identifier: GPL-2.0-or-later */
/* When an I/O was issued, from what the kernel notes. */
#include "emulated/issue_times.h"

#include "check.h"

#define ARRIVED_NS 50000000000ll
#define NOT_KNOWN ARRIVED_NS

static struct issue_slot slots[1 << ISSUE_SLOT_BITS];
static struct issue_times times = { .slots = slots };

static void note(uint64_t sector, int64_t issued_ns)
{
	slots[issue_slot_of(sector)] = (struct issue_slot){ sector + 1, issued_ns };
}

static int64_t time_of(uint64_t sector)
{
	return issue_time(&times, (int64_t)sector * 512, ARRIVED_NS);
}

int main(void)
{
	const struct issue_times without_bpf = { 0 };

	note(0, ARRIVED_NS - 7);
	note(8, ARRIVED_NS - 9);
	CHECK_EQUAL(time_of(8), ARRIVED_NS - 9);
	CHECK_EQUAL(time_of(8), NOT_KNOWN); /* it was that of one I/O */
	CHECK_EQUAL(time_of(0), ARRIVED_NS - 7);
	CHECK_EQUAL(time_of(16), NOT_KNOWN);

	slots[issue_slot_of(24)] = (struct issue_slot){ 33, ARRIVED_NS - 1 };
	CHECK_EQUAL(time_of(24), NOT_KNOWN); /* of another sector */
	note(40, ARRIVED_NS - 20000000000ll);
	CHECK_EQUAL(time_of(40), NOT_KNOWN); /* of an I/O long ago */
	note(48, ARRIVED_NS + 1);
	CHECK_EQUAL(time_of(48), NOT_KNOWN); /* of one that has not arrived */
	CHECK_EQUAL(issue_time(&without_bpf, 0, ARRIVED_NS), NOT_KNOWN);
	return 0;
}
