/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "rows.h"

#include <errno.h>
#include <string.h>

#define FILE_COLUMNS 2

static const struct block_column columns[ROW_COLUMNS] = { CAPTURE_COLUMNS(BLOCK_COLUMN) };

/* One per process: the column count is set from the options before the first thread starts. */
struct block_layout row_layout = {
	.stream = "capture",
	.columns = columns,
	.column_count = ROW_COLUMNS - FILE_COLUMNS,
};

void rows_set_files(bool files)
{
	row_layout.column_count = files ? ROW_COLUMNS : ROW_COLUMNS - FILE_COLUMNS;
}

int16_t status_errno(int16_t error)
{
	/* include/linux/blk_types.h. The numbers after AGAIN differ between kernels, so all of them are EIO. */
	static const int16_t errno_of[] = {
		0, EOPNOTSUPP, ETIMEDOUT, ENOSPC, ENOLINK, EREMOTEIO, EBADE, ENODATA, EILSEQ, ENOMEM, EIO, EREMCHG, EAGAIN,
	};

	if (error <= 0)
		return error;
	return error < (int16_t)(sizeof(errno_of) / sizeof(errno_of[0])) ? -errno_of[error] : -EIO;
}

static void set_times(struct row_block *block, uint32_t at, const struct thread_times *times)
{
	/* TIME_UNKNOWN becomes -1. */
	block->blocked_ns[at] = (int64_t)times->blocked_ns;
	block->slept_ns[at] = (int64_t)times->slept_ns;
	block->runnable_ns[at] = (int64_t)times->runnable_ns;
}

void row_append(struct row_block *block, const struct io_record *record, const struct io_file_record *file,
		uint64_t epoch_ns)
{
	bool waited = record->waited_complete_ns && record->waited_submit_ns >= epoch_ns;
	uint32_t at = block->rows++;

	block->submit_ns[at] = (int64_t)(record->submit_ns - epoch_ns);
	block->latency_ns[at] = record->complete_ns ? (int64_t)(record->complete_ns - record->submit_ns) : -1;
	block->queue_ns[at] = record->start_ns && record->start_ns <= record->submit_ns ?
			      (int64_t)(record->submit_ns - record->start_ns) : -1;
	block->offset_bytes[at] = (int64_t)record->sector * SECTOR_BYTES;
	block->length_bytes[at] = record->length_bytes;
	block->flags[at] = (int32_t)(waited ? record->flags : record->flags & ~FLAG_INHERITED);
	block->tid[at] = record->tid;
	block->device[at] = record->device;
	block->cpu[at] = record->cpu;
	block->status[at] = status_errno(record->error);
	block->op[at] = (int8_t)record->op;
	block->waited_on[at] = waited ? (int64_t)(record->waited_submit_ns - epoch_ns) : -1;
	block->think_ns[at] = waited ? (int64_t)(record->submit_ns - record->waited_complete_ns) : 0;
	/* Those of a deferred I/O are of the kernel thread that issued it. */
	set_times(block, at, record->flags & FLAG_DEFERRED ? &TIMES_UNKNOWN : &record->times);
	block->inode[at] = file && file->inode != NO_INODE ? (int64_t)file->inode : -1;
	block->cgroup[at] = file && file->cgroup ? (int64_t)file->cgroup : -1;
}

/* A row that is no I/O, of what a thread did at a time. woken_ns: the completion that woke it last before; 0: unknown. */
static uint32_t append_event(struct row_block *block, int8_t op, int32_t tid, uint64_t at_ns, uint64_t woken_ns,
			     const struct thread_times *times, uint64_t epoch_ns)
{
	uint32_t at = block->rows++;

	block->submit_ns[at] = (int64_t)(at_ns - epoch_ns);
	block->latency_ns[at] = 0;
	block->queue_ns[at] = -1;
	block->offset_bytes[at] = block->length_bytes[at] = 0;
	block->flags[at] = 0;
	block->tid[at] = tid;
	block->device[at] = block->cpu[at] = -1;
	block->status[at] = 0;
	block->op[at] = op;
	block->waited_on[at] = -1;
	block->think_ns[at] = woken_ns >= epoch_ns ? (int64_t)(at_ns - woken_ns) : -1;
	set_times(block, at, times);
	block->inode[at] = block->cgroup[at] = -1;
	return at;
}

void row_append_use(struct row_block *block, const struct use_record *use, uint64_t epoch_ns)
{
	uint32_t at = append_event(block, OP_USE, use->tid, use->used_ns, use->woken_ns, &use->times, epoch_ns);

	block->latency_ns[at] = (int64_t)(use->used_ns - use->submit_ns);
	block->submit_ns[at] -= block->latency_ns[at];
	block->flags[at] = use->corrects ? FLAG_CORRECTS : 0;
}

void row_append_wake(struct row_block *block, const struct wake_record *wake, uint64_t epoch_ns)
{
	uint32_t at = append_event(block, OP_WAKE, wake->tid, wake->at_ns, wake->woken_ns, &wake->times, epoch_ns);

	block->length_bytes[at] = wake->woken_tid;
}

void row_columns(const struct row_block *block, const void *pointers[ROW_COLUMNS])
{
	const void *const all[ROW_COLUMNS] = { CAPTURE_COLUMNS(BLOCK_POINTER) };

	memcpy(pointers, all, sizeof(all));
}
