/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The last check of a plan before it reaches a drive. It does not trust the checks of the planner. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "plan.h"

static int check_row(const struct plan *plan, const struct plan_block *block, uint32_t i, char *why, size_t size)
{
	int64_t offset = block->offset_bytes[i], length = block->length_bytes[i], due = block->due_ns[i];
	int op = block->op[i], index = block->target ? block->target[i] : 0;
	const struct target *target;

	if (op < 0 || op >= OP_COUNT) {
		snprintf(why, size, "has unknown op %d", op);
		return -EINVAL;
	}
	if (index < 0 || index >= (int)plan->target_count) {
		snprintf(why, size, "goes to target %d of %u", index, plan->target_count);
		return -EINVAL;
	}
	target = &plan->targets[index];
	if (due < -1 || (!plan->dependent && due >= 0 && due < plan->last_due_ns)) {
		snprintf(why, size, "is due at %" PRId64 " ns, before the row ahead of it (%" PRId64 " ns)", due,
			 plan->last_due_ns);
		return -EINVAL;
	}
	if (block->flags[i] & PLAN_OMITTED && !plan->dependent) {
		snprintf(why, size, "is omitted, and the plan has no dependencies");
		return -EINVAL;
	}
	/* The kernel takes a flush on a file that is open for reading. */
	if (op_changes_data(op) && !target->may_write) {
		snprintf(why, size, "is a %s, and the target is open for reading only", op_names[op]);
		return -EROFS;
	}
	if (op == OP_FLUSH)
		return 0;
	if (op_is_zone_management(op)) {
		if (!length && offset >= 0 && offset < target->size_bytes && !(target->zone_bytes && offset % target->zone_bytes))
			return 0;
		snprintf(why, size, "(%s of %" PRId64 " bytes at %" PRId64 ") does not name the start of a zone",
			 op_names[op], length, offset);
		return -EINVAL;
	}
	if (offset < 0 || length <= 0 || length > target->size_bytes || offset > target->size_bytes - length) {
		snprintf(why, size, "(%s of %" PRId64 " bytes at %" PRId64 ") lies outside the target's %" PRId64 " bytes",
			 op_names[op], length, offset, target->size_bytes);
		return -ERANGE;
	}
	if ((offset | length) % target->logical_block_bytes) {
		snprintf(why, size, "(%s of %" PRId64 " bytes at %" PRId64 ") is not aligned to the target's blocks of %"
			 PRId64 " bytes", op_names[op], length, offset, target->logical_block_bytes);
		return -EINVAL;
	}
	if (op == OP_COMPARE && target->compares.memory && !compares_data(&target->compares, offset, length)) {
		snprintf(why, size, "(compare of %" PRId64 " bytes at %" PRId64 ") has no data: its blocks were not read",
			 length, offset);
		return -EINVAL;
	}
	return 0;
}

/* A dependency lies before its row, within the history of the schedule. */
static int check_dependencies(const struct plan_block *block, uint32_t i, int64_t row, char *why, size_t size)
{
	int64_t reach = row < PLAN_REACH ? row : PLAN_REACH;

	for (unsigned k = 0; k <= PLAN_PARENTS; k++) {
		int32_t back = k < PLAN_PARENTS ? block->after[k][i] : block->behind[i];

		if (back >= 0 && back <= reach)
			continue;
		snprintf(why, size, "waits for a row %d rows back, which is not between 0 and %" PRId64, back, reach);
		return -EINVAL;
	}
	if (block->compute_ns[i] < 0) {
		snprintf(why, size, "has a compute time of %" PRId64 " ns", block->compute_ns[i]);
		return -EINVAL;
	}
	if (block->delay_ns[i] < 0) {
		snprintf(why, size, "has a delay of %" PRId64 " ns", block->delay_ns[i]);
		return -EINVAL;
	}
	if (block->compute_cpu_ns[i] < 0 || block->delay_cpu_ns[i] < 0) {
		snprintf(why, size, "has a processor time of %" PRId64 " and %" PRId64 " ns", block->compute_cpu_ns[i],
			 block->delay_cpu_ns[i]);
		return -EINVAL;
	}
	return 0;
}

int plan_check(struct plan *plan, const struct plan_block *block)
{
	for (uint32_t i = 0; i < block->rows; i++) {
		int64_t row = plan->rows_read + i;
		char why[160];
		int err = check_row(plan, block, i, why, sizeof(why));

		if (!err && plan->dependent)
			err = check_dependencies(block, i, row, why, sizeof(why));
		if (err) {
			snprintf(plan->refusal, sizeof(plan->refusal), "row %" PRId64 " of the plan %s", row, why);
			return err;
		}
		if (block->in_flight && block->in_flight[i] < 0) {
			snprintf(plan->refusal, sizeof(plan->refusal), "row %" PRId64 " of the plan has a limit of %d in flight",
				 row, block->in_flight[i]);
			return -EINVAL;
		}
		if (block->due_ns[i] >= 0)
			plan->last_due_ns = block->due_ns[i];
		if (op_is_write(block->op[i]) && block->length_bytes[i] > plan->longest_write_bytes)
			plan->longest_write_bytes = block->length_bytes[i];
	}
	return 0;
}
