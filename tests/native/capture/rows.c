/* SPDX-License-Identifier: GPL-2.0-or-later */
/* From a record of the kernel side to the columns of the trace. */
#include "rows/rows.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static void test_status_is_an_errno_whatever_the_kernel_gives(void)
{
	assert(status_errno(0) == 0);
	assert(status_errno(-EIO) == -EIO); /* before 5.17 */
	assert(status_errno(10) == -EIO); /* BLK_STS_IOERR */
	assert(status_errno(3) == -ENOSPC);
	assert(status_errno(7) == -ENODATA); /* BLK_STS_MEDIUM */
	assert(status_errno(200) == -EIO); /* a code that moved between kernels */
}

static void test_times_are_relative_and_the_unknown_is_minus_one(void)
{
	struct row_block *block = calloc(1, sizeof(*block));
	struct io_record record = {
		.op = OP_WRITE, .start_ns = 900, .submit_ns = 1500, .complete_ns = 1700, .sector = 1ull << 40,
		.length_bytes = 3u << 30, .flags = FLAG_FUA, .tid = 77, .device = 3, .cpu = 5, .error = 10,
	};

	row_append(block, &record, NULL, 1000);
	assert(block->rows == 1);
	assert(block->submit_ns[0] == 500 && block->latency_ns[0] == 200 && block->queue_ns[0] == 600);
	assert(block->offset_bytes[0] == 1ll << 49); /* sectors of 512, beyond 32 bits */
	assert(block->length_bytes[0] == 3ll << 30);
	assert(block->op[0] == 1 && block->flags[0] == FLAG_FUA && block->tid[0] == 77);
	assert(block->device[0] == 3 && block->cpu[0] == 5 && block->status[0] == -EIO);

	record.start_ns = 0;
	record.complete_ns = 0;
	row_append(block, &record, NULL, 1000);
	assert(block->latency_ns[1] == -1 && block->queue_ns[1] == -1);

	record.start_ns = 1501; /* a cached stamp may lie behind the issue */
	row_append(block, &record, NULL, 1000);
	assert(block->queue_ns[2] == -1);
	free(block);
}

static void test_what_woke_the_thread_is_kept_as_its_submit_time(void)
{
	struct row_block *block = calloc(1, sizeof(*block));
	struct io_file_record record = {
		.io = { .submit_ns = 5000, .complete_ns = 5100, .waited_submit_ns = 3000, .waited_complete_ns = 4200,
			.times = { .blocked_ns = 700, .slept_ns = 50, .runnable_ns = 9 } },
		.inode = 12, .cgroup = 0,
	};

	row_append(block, &record.io, &record, 1000);
	assert(block->waited_on[0] == 2000 && block->think_ns[0] == 800);
	assert(block->blocked_ns[0] == 700 && block->slept_ns[0] == 50 && block->runnable_ns[0] == 9);
	assert(block->inode[0] == 12 && block->cgroup[0] == -1);

	record.io.waited_complete_ns = record.io.waited_submit_ns = 0;
	record.io.times = TIMES_UNKNOWN;
	row_append(block, &record.io, NULL, 1000);
	assert(block->waited_on[1] == -1 && block->think_ns[1] == 0 && block->inode[1] == -1);
	assert(block->blocked_ns[1] == -1 && block->slept_ns[1] == -1 && block->runnable_ns[1] == -1);

	/* Of the kernel thread, not of `tid`. */
	record.io.times = (struct thread_times){ .blocked_ns = 700, .slept_ns = 50, .runnable_ns = 9 };
	record.io.flags = FLAG_DEFERRED;
	row_append(block, &record.io, NULL, 1000);
	assert(block->blocked_ns[2] == -1 && block->slept_ns[2] == -1 && block->runnable_ns[2] == -1);
	free(block);
}

static void test_a_use_is_a_row_at_the_time_of_its_read(void)
{
	struct row_block *block = calloc(1, sizeof(*block));
	struct use_record use = { .tid = 7, .submit_ns = 3000, .used_ns = 5500, .woken_ns = 5200,
		.times = { .blocked_ns = 900, .slept_ns = 60, .runnable_ns = 8 } };

	row_append_use(block, &use, 1000);
	assert(block->rows == 1 && block->op[0] == OP_USE && block->tid[0] == 7);
	assert(block->submit_ns[0] == 2000 && block->latency_ns[0] == 2500);
	assert(block->think_ns[0] == 300 && block->blocked_ns[0] == 900);
	assert(block->slept_ns[0] == 60 && block->runnable_ns[0] == 8);
	assert(block->waited_on[0] == -1 && block->device[0] == -1 && block->length_bytes[0] == 0);
	assert(block->flags[0] == 0);

	use.corrects = 1;
	use.woken_ns = 0;
	use.times.blocked_ns = TIME_UNKNOWN;
	row_append_use(block, &use, 1000);
	assert(block->think_ns[1] == -1 && block->blocked_ns[1] == -1 && block->flags[1] == FLAG_CORRECTS);
	free(block);
}

static void test_a_wake_up_is_a_row_of_the_thread_that_wakes(void)
{
	struct row_block *block = calloc(1, sizeof(*block));
	struct wake_record wake = { .tid = 7, .woken_tid = 9, .at_ns = 5500, .woken_ns = 5200,
		.times = { .blocked_ns = 900, .slept_ns = 60, .runnable_ns = 8 } };

	row_append_wake(block, &wake, 1000);
	assert(block->rows == 1 && block->op[0] == OP_WAKE && block->tid[0] == 7 && block->length_bytes[0] == 9);
	assert(block->submit_ns[0] == 4500 && block->latency_ns[0] == 0 && block->think_ns[0] == 300);
	assert(block->blocked_ns[0] == 900 && block->slept_ns[0] == 60 && block->runnable_ns[0] == 8);
	free(block);
}

static void test_columns_stand_as_the_layout_says(void)
{
	struct row_block *block = calloc(1, sizeof(*block));
	const void *columns[ROW_COLUMNS];

	row_columns(block, columns);
	rows_set_files(true);
	assert(row_layout.column_count == ROW_COLUMNS);
	rows_set_files(false);
	assert(row_layout.column_count == ROW_COLUMNS - 2);
	assert(columns[0] == block->submit_ns && columns[5] == block->flags && columns[10] == block->op);
	assert(row_layout.columns[10].width_bytes == sizeof(block->op[0]));
	free(block);
}

int main(void)
{
	test_status_is_an_errno_whatever_the_kernel_gives();
	test_times_are_relative_and_the_unknown_is_minus_one();
	test_what_woke_the_thread_is_kept_as_its_submit_time();
	test_a_use_is_a_row_at_the_time_of_its_read();
	test_a_wake_up_is_a_row_of_the_thread_that_wakes();
	test_columns_stand_as_the_layout_says();
	return 0;
}
