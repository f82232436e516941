/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The engine's own check of the plan. Whoever planned has checked before; this is what stands between a mistake there and a drive. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "plan.h"

static int check_row(const struct plan_block *block, uint32_t i, const struct target *target, int64_t last_due_ns,
		     char *why, size_t size)
{
	int64_t offset = block->offset_bytes[i], length = block->length_bytes[i], due = block->due_ns[i];
	int op = block->op[i];

	if (op < 0 || op >= OP_COUNT) {
		snprintf(why, size, "has unknown op %d", op);
		return -EINVAL;
	}
	if (due < -1 || (due >= 0 && due < last_due_ns)) {
		snprintf(why, size, "is due at %" PRId64 " ns, before the row ahead of it (%" PRId64 " ns)", due,
			 last_due_ns);
		return -EINVAL;
	}
	if (op != OP_READ && !target->may_write) {
		snprintf(why, size, "is a %s, and the target is open for reading only", op_names[op]);
		return -EROFS;
	}
	if (op == OP_FLUSH)
		return 0;
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
	return 0;
}

int plan_check(const struct plan_block *block, const struct target *target, int64_t first_row, int64_t *last_due_ns,
	       char *why, size_t why_size)
{
	int64_t last = *last_due_ns;

	for (uint32_t i = 0; i < block->rows; i++) {
		char what[160];
		int err = check_row(block, i, target, last, what, sizeof(what));

		if (err) {
			snprintf(why, why_size, "row %" PRId64 " of the plan %s", first_row + i, what);
			return err;
		}
		if (block->due_ns[i] >= 0)
			last = block->due_ns[i];
	}
	*last_due_ns = last;
	return 0;
}
