/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The plan stream of a lane, as the replay helper reads it from its pipe. Input: the stream. No row that reaches the
 * issuing side may lie outside its target, write to one that is read-only, or wait for a row that does not come.
 */
#include "fuzz.h"
#include "plan/lane.h"
#include "run/confine.h"

#include <sched.h>

#define TARGETS 2
#define IN_FLIGHT 4
#define PROCESSORS 2
#define TURNAROUND_NS 150
#define FAR_NS (INT64_MAX / 4)
#define UNKNOWN (-1)

/* Instead of confine.c, because the sanitizers make system calls that its filter refuses. */
void confine_thread(enum thread_role role)
{
	(void)role;
}

static const struct target targets[TARGETS] = {
	{ .fd = -1, .may_write = true, .size_bytes = 1 << 30, .logical_block_bytes = 512 },
	{ .fd = -1, .may_write = false, .size_bytes = (1ll << 40) + 4096, .logical_block_bytes = 4096 },
};

/* Its memory is touched when it is made, which takes longer than a run; a run leaves no row in it. */
static struct schedule *empty_schedule(void)
{
	static struct schedule schedule;

	if (!schedule.rows)
		REQUIRE(!schedule_init(&schedule, PROCESSORS, TURNAROUND_NS));
	for (uint32_t i = 0; i < SCHEDULE_AHEAD; i++)
		schedule.free_rows[i] = SCHEDULE_AHEAD - 1 - i;
	schedule.free_count = SCHEDULE_AHEAD;
	schedule.heap_count = schedule.processors.heap_count = schedule.processors.ready_count = 0;
	schedule.processors.at_ns = 0;
	schedule.processors.given_ns = 0;
	schedule.completed_ns = INT64_MIN;
	schedule.admitted = schedule.oldest_open = 0;
	return &schedule;
}

static void require_valid(const struct io *io)
{
	const struct target *target;

	REQUIRE(io->op >= 0 && io->op < OP_COUNT && io->target >= 0 && io->target < TARGETS);
	target = &targets[io->target];
	REQUIRE(io->op == OP_READ || io->op == OP_FLUSH || target->may_write);
	if (io->op == OP_FLUSH)
		return;
	if (op_is_zone_management(io->op)) {
		REQUIRE(io->offset_bytes >= 0 && io->offset_bytes < target->size_bytes && !io->length_bytes);
		REQUIRE(!target->zone_bytes || io->offset_bytes % target->zone_bytes == 0);
		return;
	}
	REQUIRE(io->offset_bytes >= 0 && io->length_bytes > 0);
	REQUIRE(io->offset_bytes <= target->size_bytes - io->length_bytes);
	REQUIRE(!(io->offset_bytes % target->logical_block_bytes) && !(io->length_bytes % target->logical_block_bytes));
}

/* Issues all rows, with up to IN_FLIGHT at a time. Returns how many; UNKNOWN: some compute for centuries. */
static int64_t issue_all(struct lane *lane)
{
	struct io ios[IN_FLIGHT];
	unsigned head = 0, in_flight = 0;
	int64_t now_ns = 0, rows = 0;

	for (;;) {
		int64_t due_ns = lane_next_due_ns(lane, now_ns);

		if (due_ns != LANE_NOTHING && lane->plan.dependent && !schedule_first(&lane->schedule)) {
			/* Rows compute, and none is due before. */
			if (due_ns >= FAR_NS)
				return UNKNOWN;
			now_ns = due_ns;
		} else if (due_ns != LANE_NOTHING && in_flight < IN_FLIGHT) {
			struct io *io = &ios[(head + in_flight++) % IN_FLIGHT];
			int8_t op;
			int16_t target;
			int64_t offset_bytes, length_bytes;

			*io = (struct io){ 0 };
			lane_peek(lane, &target, &op, &offset_bytes, &length_bytes);
			lane_take(lane, io);
			REQUIRE(io->op == op && io->target == target && io->offset_bytes == offset_bytes &&
				io->length_bytes == length_bytes);
			require_valid(io);
			io->submit_ns = now_ns += 100;
			lane_submitted(lane, io);
			rows++;
		} else if (in_flight) {
			lane_completed(lane, &ios[head++ % IN_FLIGHT], now_ns += 100, 0);
			in_flight--;
		} else if (lane_exhausted(lane)) {
			return rows;
		} else {
			sched_yield(); /* the reader has more */
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct stop stop = { 0 };
	struct lane lane = { .depth = IN_FLIGHT, .queue_was_full_ns = INT64_MIN };
	int fd = memory_file(data, size);
	int64_t rows;

	REQUIRE(!plan_init(&lane.plan, fd, targets, TARGETS, &stop));
	plan_wait_loaded(&lane.plan);
	if (!stop_requested(&stop)) {
		if (lane.plan.dependent)
			lane.schedule = *empty_schedule();
		rows = issue_all(&lane);
		REQUIRE(rows == UNKNOWN || rows == atomic_load(&lane.plan.rows_read));
	} else {
		REQUIRE(stop_requested(&stop) != STOP_PLAN_REFUSED || lane.plan.refusal[0]);
	}
	plan_deinit(&lane.plan);
	close(fd);
	return 0;
}
