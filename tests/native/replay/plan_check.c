/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Rows that the engine refuses, and how a target executes an op. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "plan/plan.h"
#include "plan/zone_guard.h"

static const int64_t size_bytes = 1 << 20;

static struct target a_target(bool may_write)
{
	return (struct target){
		.fd = 3,
		.block_device = true,
		.may_write = may_write,
		.realtime_priority = true,
		.fua = true,
		.write_cache = true,
		.size_bytes = size_bytes,
		.logical_block_bytes = 4096,
		.discard_max_bytes = 1 << 30,
		.write_zeroes_max_bytes = 1 << 30,
	};
}

/* Checks a block whose second row is the given one; the first is valid. */
static int check_row(const struct target *target, int64_t due, int op, int64_t offset, int64_t length, const char *says)
{
	int64_t dues[] = { 500, due }, offsets[] = { 0, offset }, lengths[] = { 4096, length };
	int8_t ops[] = { OP_READ, op };
	int32_t flags[] = { 0, 0 };
	struct plan_block block = {
		.rows = 2, .due_ns = dues, .offset_bytes = offsets, .length_bytes = lengths, .op = ops, .flags = flags,
	};
	struct plan plan = { .targets = target, .target_count = 1, .rows_read = 100 };
	int err = plan_check(&plan, &block);

	if (err)
		CHECK(strstr(plan.refusal, "row 101 "));
	if (says && !strstr(plan.refusal, says)) {
		fprintf(stderr, "%s\n", plan.refusal);
		CHECK(!"the reason names what is wrong");
	}
	return err;
}

static void test_rows(void)
{
	struct target reads = a_target(false), writes = a_target(true);

	CHECK_EQUAL(check_row(&reads, 500, OP_READ, size_bytes - 4096, 4096, NULL), 0);
	CHECK_EQUAL(check_row(&reads, -1, OP_READ, 0, size_bytes, NULL), 0);
	CHECK_EQUAL(check_row(&reads, 600, OP_READ, size_bytes - 4096, 8192, "outside"), -ERANGE);
	CHECK_EQUAL(check_row(&reads, 600, OP_READ, INT64_MAX - 4095, 4096, "outside"), -ERANGE);
	CHECK_EQUAL(check_row(&reads, 600, OP_READ, 0, INT64_MAX, "outside"), -ERANGE);
	CHECK_EQUAL(check_row(&reads, 600, OP_READ, -4096, 4096, "outside"), -ERANGE);
	CHECK_EQUAL(check_row(&reads, 600, OP_READ, 0, 0, "outside"), -ERANGE);
	CHECK_EQUAL(check_row(&reads, 600, OP_READ, 512, 4096, "aligned"), -EINVAL);
	CHECK_EQUAL(check_row(&reads, 600, OP_READ, 0, 512, "aligned"), -EINVAL);
	CHECK_EQUAL(check_row(&reads, 499, OP_READ, 0, 4096, "before the row ahead"), -EINVAL);
	CHECK_EQUAL(check_row(&reads, -2, OP_READ, 0, 4096, "due"), -EINVAL);
	CHECK_EQUAL(check_row(&reads, 600, OP_COUNT, 0, 4096, "unknown op"), -EINVAL);
	CHECK_EQUAL(check_row(&reads, 600, -1, 0, 4096, "unknown op"), -EINVAL);
	for (int op = OP_WRITE; op < OP_COUNT; op++) {
		int64_t length = op_is_zone_management(op) ? 0 : 4096;
		bool changes = op != OP_FLUSH && op != OP_VERIFY && op != OP_COMPARE;

		CHECK_EQUAL(check_row(&reads, 600, op, 0, length, changes ? "reading only" : NULL),
			    changes ? -EROFS : 0);
		CHECK_EQUAL(check_row(&writes, 600, op, 0, length, NULL), 0);
	}
	/* Zone management names a zone by its start, on a drive without zones too. */
	for (int op = OP_ZONE_RESET; op <= OP_ZONE_FINISH; op++) {
		CHECK_EQUAL(check_row(&writes, 600, op, 0, 4096, "start of a zone"), -EINVAL);
		CHECK_EQUAL(check_row(&writes, 600, op, size_bytes, 0, "start of a zone"), -EINVAL);
		CHECK_EQUAL(check_row(&writes, 600, op, 4096, 0, NULL), 0);
		writes.zone_bytes = 8192;
		CHECK_EQUAL(check_row(&writes, 600, op, 4096, 0, "start of a zone"), -EINVAL);
		CHECK_EQUAL(check_row(&writes, 600, op, 8192, 0, NULL), 0);
		writes.zone_bytes = 0;
	}
	/* With data for some compares, those of other blocks were not planned when the data was read. */
	writes.compares = (struct compares){
		.count = 1, .ranges = &(struct compared_range){ 4096, 12288, 512 }, .memory = "",
	};
	CHECK_EQUAL(check_row(&writes, 600, OP_COMPARE, 8192, 4096, NULL), 0);
	CHECK_EQUAL(check_row(&writes, 600, OP_COMPARE, 8192, 8192, "has no data"), -EINVAL);
	/* A flush has no range; other ops may have any length. */
	CHECK_EQUAL(check_row(&writes, 600, OP_FLUSH, -1, 0, NULL), 0);
	writes.size_bytes = 1ll << 40;
	CHECK_EQUAL(check_row(&writes, 600, OP_DISCARD, 0, 1ll << 39, NULL), 0);
	CHECK_EQUAL(check_row(&writes, 600, OP_WRITE, 0, 1ll << 39, NULL), 0);
}

static void test_long_rows(void)
{
	static const int64_t kib = 1024, mib = 1 << 20;
	struct target drive = a_target(true);

	drive.max_io_bytes = 1280 * kib;
	drive.discard_max_bytes = drive.write_zeroes_max_bytes = 8 * mib;
	/* Three requests of the kernel, and no part of a fourth. */
	CHECK_EQUAL(target_piece_bytes(&drive), 3 * 1280 * kib);
	CHECK_EQUAL(target_requests(&drive, OP_READ, 1280 * kib), 1);
	CHECK_EQUAL(target_requests(&drive, OP_READ, 1280 * kib + 512), 2);
	CHECK_EQUAL(target_requests(&drive, OP_FLUSH, 0), 1);
	/* Commands without data have their own limits. */
	CHECK_EQUAL(target_requests(&drive, OP_DISCARD, 8 * mib), 1);
	CHECK_EQUAL(target_requests(&drive, OP_DISCARD, 9 * mib), 2);
	CHECK_EQUAL(target_requests(&drive, OP_WRITE_ZEROES, 24 * mib), 3);
	drive.write_zeroes_max_bytes = 0;
	CHECK_EQUAL(target_requests(&drive, OP_WRITE_ZEROES, 2560 * kib), 2);
	drive.max_io_bytes = 32 * mib;
	CHECK_EQUAL(target_piece_bytes(&drive), PIECE_MAX_BYTES);
	drive.max_io_bytes = 0;
	CHECK_EQUAL(target_piece_bytes(&drive), PIECE_MAX_BYTES);
	CHECK_EQUAL(target_requests(&drive, OP_WRITE, 2 * mib), 1);
	CHECK_EQUAL(target_requests(&drive, OP_WRITE, PIECE_MAX_BYTES + 512), 2);
}

static void test_fidelity(void)
{
	struct target drive = a_target(true), file = a_target(true);

	file.block_device = false;
	CHECK_EQUAL(target_fidelity(&drive, OP_WRITE, FLAG_FUA | FLAG_PREFLUSH), AS_PLANNED);
	CHECK_EQUAL(target_fidelity(&file, OP_WRITE, FLAG_FUA), ALTERED_FUA);
	CHECK_EQUAL(target_fidelity(&file, OP_WRITE, FLAG_PREFLUSH), ALTERED_PREFLUSH);
	CHECK_EQUAL(target_fidelity(&file, OP_WRITE, 0), AS_PLANNED);
	CHECK_EQUAL(target_fidelity(&drive, OP_READ, FLAG_FUA), ALTERED_FUA);
	CHECK_EQUAL(target_fidelity(&drive, OP_FLUSH, FLAG_PREFLUSH), AS_PLANNED);
	CHECK_EQUAL(target_fidelity(&file, OP_FLUSH, 0), ALTERED_FLUSH);
	CHECK_EQUAL(target_fidelity(&drive, OP_DISCARD, 0), AS_PLANNED);
	CHECK_EQUAL(target_fidelity(&file, OP_DISCARD, 0), ALTERED_DISCARD);
	CHECK_EQUAL(target_fidelity(&drive, OP_READ, FLAG_PRIORITY_REALTIME), AS_PLANNED);
	CHECK_EQUAL(target_fidelity(&drive, OP_ZONE_APPEND, 0), ALTERED_ZONE_APPEND);
	CHECK_EQUAL(target_fidelity(&file, OP_ZONE_APPEND, FLAG_FUA), ALTERED_FUA);
	CHECK_EQUAL(target_fidelity(&drive, OP_ZONE_RESET, 0), DROPPED);
	drive.zone_bytes = 8192;
	CHECK_EQUAL(target_fidelity(&drive, OP_ZONE_RESET, 0), AS_PLANNED);
	drive.discard_max_bytes = drive.write_zeroes_max_bytes = 0;
	drive.realtime_priority = false;
	CHECK_EQUAL(target_fidelity(&drive, OP_DISCARD, 0), DROPPED);
	CHECK_EQUAL(target_fidelity(&drive, OP_WRITE_ZEROES, 0), ALTERED_WRITE_ZEROES);
	CHECK_EQUAL(target_fidelity(&drive, OP_READ, FLAG_PRIORITY_REALTIME), ALTERED_PRIORITY);
}

/* Drives without FUA, or without a volatile cache. */
static void test_fidelity_of_caches(void)
{
	struct target drive = a_target(true);

	drive.fua = false;
	CHECK_EQUAL(target_fidelity(&drive, OP_WRITE, FLAG_FUA), ALTERED_FUA_BY_FLUSH);
	CHECK_EQUAL(target_fidelity(&drive, OP_WRITE, FLAG_FUA | FLAG_PREFLUSH), ALTERED_FUA_BY_FLUSH);
	CHECK_EQUAL(target_fidelity(&drive, OP_WRITE, FLAG_PREFLUSH), AS_PLANNED);
	CHECK_EQUAL(target_fidelity(&drive, OP_FLUSH, 0), AS_PLANNED);
	drive.write_cache = false;
	CHECK_EQUAL(target_fidelity(&drive, OP_WRITE, 0), AS_PLANNED);
	CHECK_EQUAL(target_fidelity(&drive, OP_WRITE, FLAG_FUA | FLAG_PREFLUSH), ALTERED_FUA_WITHOUT_CACHE);
	CHECK_EQUAL(target_fidelity(&drive, OP_WRITE, FLAG_PREFLUSH), ALTERED_PREFLUSH_WITHOUT_CACHE);
	CHECK_EQUAL(target_fidelity(&drive, OP_FLUSH, FLAG_PREFLUSH), ALTERED_FLUSH_WITHOUT_CACHE);
}

/* The kernel accepts I/O classes only for reads and writes. */
static void test_fidelity_of_priorities(void)
{
	struct target drive = a_target(true);

	CHECK_EQUAL(target_fidelity(&drive, OP_WRITE, FLAG_PRIORITY_IDLE), AS_PLANNED);
	CHECK_EQUAL(target_fidelity(&drive, OP_FLUSH, FLAG_PRIORITY_BEST_EFFORT), AS_PLANNED);
	CHECK_EQUAL(target_fidelity(&drive, OP_FLUSH, FLAG_PRIORITY_IDLE), ALTERED_PRIORITY);
	CHECK_EQUAL(target_fidelity(&drive, OP_DISCARD, FLAG_PRIORITY_REALTIME), ALTERED_PRIORITY);
}

/* A hint takes a node of the drive, an atomic write a length and a place that the drive has. */
static void test_write_flags(void)
{
	struct target drive = a_target(true), file, nil = { .fd = -1 };
	const int32_t hint = FLAG_HINT_EXTREME | FLAG_FUA, atomic = FLAG_ATOMIC | FLAG_SYNC;
	const struct {
		int64_t offset, length;
		bool atomic;
	} writes[] = { { 8192, 8192, true },  { 4096, 8192, false }, { 0, 2048, false },  { 0, 32768, false },
		       { 0, 12288, false }, { 49152, 16384, true }, { 1 << 19, 4096, true } };

	CHECK_EQUAL(target_write_flags(&drive, OP_WRITE, hint, 0, 4096), FLAG_FUA);
	CHECK_EQUAL(target_write_flags(&drive, OP_WRITE, atomic, 0, 4096), FLAG_SYNC);
	CHECK_EQUAL(target_write_flags(&nil, OP_WRITE, hint | atomic, 0, 4096), hint | atomic);
	drive.write_support = (struct write_support){
		.atomic_min_bytes = 4096, .atomic_max_bytes = 16384, .hinted = true,
	};
	CHECK_EQUAL(target_write_flags(&drive, OP_WRITE, hint, 0, 4096), hint);
	CHECK_EQUAL(target_write_flags(&drive, OP_ZONE_APPEND, hint, 0, 4096), hint);
	CHECK_EQUAL(target_write_flags(&drive, OP_READ, hint | atomic, 0, 4096), FLAG_FUA | FLAG_SYNC);
	for (size_t i = 0; i < sizeof(writes) / sizeof(writes[0]); i++)
		CHECK_EQUAL(target_write_flags(&drive, OP_WRITE, atomic, writes[i].offset, writes[i].length),
			    writes[i].atomic ? atomic : FLAG_SYNC);
	file = drive;
	file.block_device = false;
	CHECK_EQUAL(target_write_flags(&file, OP_WRITE, hint | atomic, 0, 4096), FLAG_FUA | FLAG_SYNC);
	drive.command_fd = 5;
	CHECK_EQUAL(target_write_flags(&drive, OP_WRITE, hint | atomic, 0, 4096), FLAG_FUA | FLAG_SYNC);
	CHECK_EQUAL(hint_index(0), -1);
	CHECK_EQUAL(hint_index(FLAG_FUA | FLAG_HINT_NONE), 0);
	CHECK_EQUAL(hint_index(FLAG_HINT_EXTREME), HINT_COUNT - 1);
}

static void test_one_change_at_a_time_in_a_zone(void)
{
	struct target targets[] = { a_target(true), a_target(true) };
	struct zone_guard guard = { 0 };

	targets[1].zone_bytes = 8192;
	CHECK_EQUAL(zone_guard_init(&guard, targets, 2), 0);
	zone_guard_set(&guard, 0, OP_WRITE, 0, true);
	CHECK(zone_guard_allows(&guard, 0, OP_WRITE, 0)); /* it has no zones */
	zone_guard_set(&guard, 1, OP_READ, 8192, true);
	CHECK(zone_guard_allows(&guard, 1, OP_WRITE, 8192));
	zone_guard_set(&guard, 1, OP_ZONE_APPEND, 12288, true);
	for (int op = 0; op < OP_COUNT; op++) {
		bool changes = op_is_write(op) || op == OP_WRITE_ZEROES || op_is_zone_management(op);

		CHECK(zone_guard_allows(&guard, 1, op, 8192) == !changes);
		CHECK(zone_guard_allows(&guard, 1, op, 0) == (op != OP_ZONE_RESET_ALL));
	}
	zone_guard_set(&guard, 1, OP_ZONE_APPEND, 12288, false);
	CHECK(zone_guard_allows(&guard, 1, OP_ZONE_RESET_ALL, 0));
	zone_guard_set(&guard, 1, OP_ZONE_RESET_ALL, 0, true);
	CHECK(!zone_guard_allows(&guard, 1, OP_WRITE, 16384) && zone_guard_allows(&guard, 1, OP_READ, 16384));
	zone_guard_set(&guard, 1, OP_ZONE_RESET_ALL, 0, false);
	CHECK(zone_guard_allows(&guard, 1, OP_WRITE, 16384));
	zone_guard_deinit(&guard);
}

int main(void)
{
	test_one_change_at_a_time_in_a_zone();
	test_rows();
	test_long_rows();
	test_fidelity();
	test_fidelity_of_caches();
	test_fidelity_of_priorities();
	test_write_flags();
	return 0;
}
