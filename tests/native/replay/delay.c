/* SPDX-License-Identifier: GPL-2.0-or-later */
/* When replies of an emulated drive are due: by the issues of its I/Os, whose requests arrive later and in another order. */
#include "emulated/delay.h"

#include <limits.h>

#include "check.h"
#include "drive_text.h"
#include "run/clock.h"

#define US 1000ll
#define MIB (1 << 20)
#define ARRIVED_NS (1000 * US)
#define CONSTANT_NS (70 * US)
/* One I/O at a time, so that their order decides when each is complete. */
#define IN_TURNS "commands 1\n"

static struct drive drive, in_order;
static struct delay delay;
static struct noted notes[DELAY_SLOTS + 1];
static unsigned note_count;

static void take_noted(void *context)
{
	(void)context;
	for (unsigned i = 0; i < note_count; i++)
		delay_noted(&delay, &notes[i]);
	note_count = 0;
}

/* All times are after the start. */
static void issue(int64_t at_ns, enum trace_op op, int64_t offset_bytes, int64_t length_bytes)
{
	notes[note_count++] = (struct noted){ (uint64_t)(delay.start_ns + at_ns), (uint64_t)offset_bytes,
					      (uint32_t)length_bytes, op, false };
}

/* When the reply is due. */
static int64_t arrive(int64_t at_ns, enum trace_op op, int64_t offset_bytes, int64_t length_bytes)
{
	struct emulated_io *io = delay_take(&delay);

	io->op = op;
	io->offset_bytes = offset_bytes;
	io->length_bytes = length_bytes;
	io->arrived_ns = delay.start_ns + at_ns;
	delay_submit(&delay, io);
	return io->send_ns - delay.start_ns;
}

static int64_t expect(int64_t at_ns, enum trace_op op, int64_t offset_bytes, int64_t length_bytes)
{
	return drive_submit(&in_order, at_ns, op, 0, offset_bytes, length_bytes);
}

static void begin(void)
{
	note_count = 0;
	make_drive(&drive, IN_TURNS);
	make_drive(&in_order, IN_TURNS);
	CHECK(!delay_init(&delay, &drive, DELAY_SLOTS));
	delay_set_noted(&delay, take_noted, NULL);
}

static void a_read_that_overtakes_a_write_on_the_way(void)
{
	int64_t write_ns = expect(700 * US, OP_WRITE, 0, MIB), read_ns = expect(900 * US, OP_READ, MIB, 4096);

	begin();
	issue(700 * US, OP_WRITE, 0, MIB);
	issue(900 * US, OP_READ, MIB, 4096);
	CHECK_EQUAL(arrive(ARRIVED_NS, OP_READ, MIB, 4096), read_ns);
	CHECK_EQUAL(arrive(ARRIVED_NS + 100 * US, OP_WRITE, 0, MIB), write_ns);
	CHECK_EQUAL((int64_t)delay.counts.ios[OP_READ], 1);
	CHECK_EQUAL((int64_t)delay.counts.bytes[OP_WRITE], MIB);
	delay_deinit(&delay);
}

/* As that of FUSE, whose flushes wait for a thread of the kernel. */
static void a_flush_that_waited_on_the_way(void)
{
	struct overhead overheads[KIND_COUNT] = { 0 };
	int64_t flush_ns = expect(700 * US, OP_FLUSH, 0, 0);

	begin();
	overheads[KIND_BLOCKING].io_ns = 30 * US;
	delay_set_overheads(&delay, overheads);
	issue(700 * US, OP_FLUSH, 0, 0);
	CHECK_EQUAL(arrive(ARRIVED_NS, OP_FLUSH, 0, 0), flush_ns - 30 * US);
	delay.later_ns[KIND_BLOCKING] = 5 * US;
	CHECK_EQUAL(arrive(2 * ARRIVED_NS, OP_FLUSH, 0, 0), expect(2 * ARRIVED_NS, OP_FLUSH, 0, 0) - 35 * US);
	delay_deinit(&delay);
}

static void two_of_one_place(void)
{
	int64_t first_ns, second_ns;

	begin();
	first_ns = expect(100 * US, OP_READ, 0, 4096);
	second_ns = expect(200 * US, OP_READ, 0, 4096);
	issue(100 * US, OP_READ, 0, 4096);
	issue(200 * US, OP_READ, 0, 4096);
	CHECK_EQUAL(arrive(ARRIVED_NS, OP_READ, 0, 4096) + arrive(ARRIVED_NS, OP_READ, 0, 4096), first_ns + second_ns);
	delay_deinit(&delay);
}

static void what_the_kernel_did_not_announce(void)
{
	begin();
	CHECK_EQUAL(arrive(ARRIVED_NS, OP_READ, 0, 4096), expect(ARRIVED_NS, OP_READ, 0, 4096));
	delay_deinit(&delay);

	begin(); /* of another place, of another kind */
	issue(100 * US, OP_READ, 8192, 4096);
	issue(100 * US, OP_WRITE, 0, 4096);
	expect(100 * US, OP_READ, 8192, 4096);
	expect(100 * US, OP_WRITE, 0, 4096);
	CHECK_EQUAL(arrive(ARRIVED_NS, OP_READ, 0, 4096), expect(ARRIVED_NS, OP_READ, 0, 4096));
	delay_deinit(&delay);

	begin(); /* long ago */
	issue(ARRIVED_NS, OP_READ, 0, 4096);
	expect(ARRIVED_NS, OP_READ, 0, 4096);
	CHECK_EQUAL(arrive(ARRIVED_NS + 11 * NS_PER_S, OP_READ, 0, 4096),
		    expect(ARRIVED_NS + 11 * NS_PER_S, OP_READ, 0, 4096));
	delay_deinit(&delay);
}

static void more_than_can_be_in_flight(void)
{
	begin();
	for (int i = 0; i <= DELAY_SLOTS; i++) {
		issue(i * US, OP_READ, i * 4096ll, 4096);
		expect(i * US, OP_READ, i * 4096ll, 4096);
	}
	/* The oldest is forgotten, and counts from its arrival. */
	CHECK_EQUAL(arrive(ARRIVED_NS, OP_READ, 0, 4096), expect(ARRIVED_NS, OP_READ, 0, 4096));
	CHECK_EQUAL((int64_t)delay.announced_count, DELAY_SLOTS);
	delay_deinit(&delay);
}

static void a_calibration(void)
{
	begin();
	delay_set_constant(&delay, CONSTANT_NS);
	issue(ARRIVED_NS - 20 * US, OP_READ, 0, 4096);
	CHECK_EQUAL(arrive(ARRIVED_NS, OP_READ, 0, 4096), ARRIVED_NS - 20 * US + CONSTANT_NS);
	delay_set_constant(&delay, DELAY_NONE);
	CHECK_EQUAL(arrive(ARRIVED_NS, OP_READ, 0, 4096), expect(ARRIVED_NS, OP_READ, 0, 4096));
	delay_deinit(&delay);
}

static void drop_reply(void *context, const struct emulated_io *io)
{
	(void)context;
	(void)io;
}

/* A read whose reply leaves at once, and that the kernel completes now. Returns when its reply was due. */
static int64_t complete_now(int64_t at_ns, int64_t offset_bytes)
{
	int64_t due_ns = arrive(at_ns, OP_READ, offset_bytes, 4096);

	delay_ready(&delay, &delay.ios[delay.replies.entries[0].slot]);
	delay_send_due(&delay);
	CHECK_EQUAL((int64_t)delay.replies.count, 0);
	notes[note_count++] = (struct noted){ (uint64_t)monotonic_ns(), (uint64_t)offset_bytes, 4096, OP_READ, true };
	return due_ns;
}

/* Of reads that are complete seconds after the time of the model, 2 us each are learned. */
static void completions_that_come_later(void)
{
	begin();
	delay.start_ns -= 10 * NS_PER_S;
	delay.reply = drop_reply;
	for (int i = 0; i < 3; i++) {
		int64_t at_ns = ARRIVED_NS + i * 100 * US;

		CHECK_EQUAL(complete_now(at_ns, i * 4096ll), expect(at_ns, OP_READ, i * 4096ll, 4096) - i * 2 * US);
	}
	/* A write has its own, and a completion counts once. */
	notes[note_count] = notes[note_count - 1];
	note_count++;
	CHECK_EQUAL(arrive(2 * ARRIVED_NS, OP_WRITE, 0, 4096), expect(2 * ARRIVED_NS, OP_WRITE, 0, 4096));
	CHECK_EQUAL(arrive(3 * ARRIVED_NS, OP_READ, 0, 4096), expect(3 * ARRIVED_NS, OP_READ, 0, 4096) - 6 * US);
	CHECK_EQUAL((int64_t)delay.counts.late_ios, 3);
	delay_deinit(&delay);
}

static void completions_that_come_earlier(void)
{
	const struct overhead overheads[KIND_COUNT] = { { NS_PER_S, 0 }, { NS_PER_S, 0 } };

	begin();
	delay.reply = drop_reply;
	delay.later_ns[0] = 500 * US; /* of a time with many I/Os in flight */
	delay_set_overheads(&delay, overheads);
	complete_now(monotonic_ns() - delay.start_ns + NS_PER_S / 2, 0);
	arrive(0, OP_WRITE, 0, 4096);
	CHECK(delay.later_ns[0] < 500 * US);
	delay_deinit(&delay);
}

/* What completions show under a calibration is known, and is not learned again. */
static void completions_of_a_calibration(void)
{
	begin();
	delay.start_ns -= 10 * NS_PER_S;
	delay.reply = drop_reply;
	delay_set_constant(&delay, CONSTANT_NS);
	for (int i = 0; i < 3; i++)
		CHECK_EQUAL(complete_now(ARRIVED_NS, i * 4096ll), ARRIVED_NS + CONSTANT_NS);
	take_noted(NULL);
	CHECK_EQUAL(delay.known_ns[0], 6 * US);
	CHECK_EQUAL(delay.later_ns[0], 0);
	delay_set_constant(&delay, DELAY_NONE);
	delay.known_ns[0] = 3600 * NS_PER_S; /* more than the next completion comes later */
	complete_now(ARRIVED_NS, 0);
	take_noted(NULL);
	CHECK(delay.later_ns[0] < 0);
	delay_deinit(&delay);
}

int main(void)
{
	make_drive(&in_order, IN_TURNS);
	a_read_that_overtakes_a_write_on_the_way();
	a_flush_that_waited_on_the_way();
	two_of_one_place();
	what_the_kernel_did_not_announce();
	more_than_can_be_in_flight();
	a_calibration();
	completions_that_come_later();
	completions_that_come_earlier();
	completions_of_a_calibration();
	drive_deinit(&drive);
	drive_deinit(&in_order);
	return 0;
}
