/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The outbox keeps the order, writes everything, and lets the drain end when nobody reads. */
#include "rows/drain.h"
#include "rows/outbox.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define BLOCKS 200 /* more than circulate at once */

static void read_layout(int fd)
{
	const struct block_layout *const layouts[] = { &row_layout };

	assert(!block_read_layout(fd, layouts, 1));
}

static void *post_blocks(void *argument)
{
	struct outbox *outbox = argument;

	for (int i = 0; i < BLOCKS; i++) {
		struct row_block *block = outbox_take(outbox);
		struct io_record record = { .submit_ns = (uint64_t)i, .complete_ns = (uint64_t)i + 1 };

		assert(block->rows == 0);
		row_append(block, &record, NULL, 0);
		outbox_post_rows(outbox, block);
	}
	outbox_post_json(outbox, BLOCK_END, strdup("{}"));
	return NULL;
}

static void test_all_blocks_arrive_in_order(void)
{
	struct block_header header;
	struct outbox outbox;
	pthread_t poster;
	char payload[4096];
	int fds[2];

	assert(!pipe(fds));
	assert(!outbox_init(&outbox, fds[1], -1, NULL));
	read_layout(fds[0]);
	assert(!pthread_create(&poster, NULL, post_blocks, &outbox));
	for (int64_t i = 0; i < BLOCKS; i++) {
		assert(!block_read_header(fds[0], &header));
		assert(header.kind == BLOCK_ROWS && header.rows == 1 && header.payload_bytes <= sizeof(payload));
		assert(!block_read_exactly(fds[0], payload, header.payload_bytes));
		assert(!memcmp(payload, &i, sizeof(i))); /* the first column is submit_ns */
	}
	assert(!block_read_header(fds[0], &header) && header.kind == BLOCK_END);
	pthread_join(poster, NULL);
	assert(!outbox_finish(&outbox));
	outbox_deinit(&outbox);
	close(fds[0]);
	close(fds[1]);
}

static void test_a_reader_that_is_gone_is_an_error_and_no_deadlock(void)
{
	struct outbox outbox;
	int fds[2];

	assert(!pipe(fds));
	assert(!outbox_init(&outbox, fds[1], -1, NULL));
	close(fds[0]);
	post_blocks(&outbox);
	assert(outbox_finish(&outbox) == -EPIPE);
	outbox_deinit(&outbox);
	close(fds[1]);
}

/* A limit of the file's size is the full disk that needs no file system of its own. */
static void test_a_full_disk_leaves_whole_blocks_and_room_behind_them(void)
{
	struct rlimit limit = { 10000, RLIM_INFINITY };
	char path[] = "/tmp/blkreel-outbox-XXXXXX";
	struct block_header header;
	struct outbox outbox;
	uint64_t blocks = 0;
	int fd = mkstemp(path);

	assert(fd >= 0 && !unlink(path));
	assert(!outbox_init(&outbox, fd, -1, NULL));
	assert(!setrlimit(RLIMIT_FSIZE, &limit));
	post_blocks(&outbox);
	assert(outbox_finish(&outbox) == -EFBIG);
	limit.rlim_cur = RLIM_INFINITY;
	assert(!setrlimit(RLIMIT_FSIZE, &limit));
	assert(!block_write_json(fd, BLOCK_END, "{}", true));
	assert(lseek(fd, 0, SEEK_SET) == 0);
	read_layout(fd);
	while (!block_read_header(fd, &header) && header.kind == BLOCK_ROWS) {
		assert(lseek(fd, (off_t)header.payload_bytes, SEEK_CUR) > 0);
		blocks++;
	}
	assert(header.kind == BLOCK_END);
	assert(blocks > 0 && blocks == outbox.written.rows && blocks + outbox.written.unwritten_rows == BLOCKS);
	assert(outbox.written.ios[OP_READ] == blocks);
	outbox_deinit(&outbox);
	close(fd);
}

/* Without memory for a text the capture ends with an error, and its rows are kept. */
static void test_a_text_without_memory_is_an_error(void)
{
	char path[] = "/tmp/blkreel-outbox-XXXXXX";
	struct outbox outbox;
	int fd = mkstemp(path);

	assert(fd >= 0 && !unlink(path));
	assert(!outbox_init(&outbox, fd, -1, NULL));
	outbox_post_json(&outbox, BLOCK_NOTE, NULL);
	assert(outbox_finish(&outbox) == -ENOMEM);
	outbox_deinit(&outbox);
	close(fd);
}

/* Recording begins a moment before time 0 is read. */
static void test_what_was_submitted_before_time_0_has_no_row(void)
{
	const struct io_record early = { .submit_ns = 99 }, first = { .submit_ns = 100 };
	struct outbox outbox;
	struct drain drain = { .outbox = &outbox };
	char path[] = "/tmp/blkreel-outbox-XXXXXX";
	int fd = mkstemp(path);

	assert(fd >= 0 && !unlink(path));
	assert(!outbox_init(&outbox, fd, -1, NULL));
	drain.block = outbox_take(&outbox);
	drain_add(&drain, &first, NULL);
	drain.epoch_ns = 100;
	drain_add(&drain, &early, NULL);
	drain_add(&drain, &first, NULL);
	assert(drain.before_start == 2 && drain.rows == 1 && drain.block->rows == 1 && drain.block->submit_ns[0] == 0);
	outbox_post_rows(&outbox, drain.block);
	assert(!outbox_finish(&outbox));
	outbox_deinit(&outbox);
	close(fd);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	alarm(60);
	test_all_blocks_arrive_in_order();
	test_a_full_disk_leaves_whole_blocks_and_room_behind_them();
	test_a_reader_that_is_gone_is_an_error_and_no_deadlock();
	test_a_text_without_memory_is_an_error();
	test_what_was_submitted_before_time_0_has_no_row();
	return 0;
}
