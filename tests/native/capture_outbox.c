/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The outbox keeps order, carries all, and lets the drain end when nobody reads. */
#include "outbox.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 200 /* more than go round at once */

static void *post_blocks(void *argument)
{
	struct outbox *outbox = argument;

	for (int i = 0; i < BLOCKS; i++) {
		struct row_block *block = outbox_take(outbox);
		struct io_record record = { .submit_ns = i, .complete_ns = i + 1 };

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
	assert(!outbox_open(&outbox, fds[1]));
	assert(!pthread_create(&poster, NULL, post_blocks, &outbox));
	for (int64_t i = 0; i < BLOCKS; i++) {
		assert(!block_read_header(fds[0], &header));
		assert(header.kind == BLOCK_ROWS && header.rows == 1 && header.payload_bytes <= sizeof(payload));
		assert(!block_read_exactly(fds[0], payload, header.payload_bytes));
		assert(!memcmp(payload, &i, sizeof(i))); /* the first column is submit_ns */
	}
	assert(!block_read_header(fds[0], &header) && header.kind == BLOCK_END);
	pthread_join(poster, NULL);
	assert(!outbox_close(&outbox));
	close(fds[0]);
	close(fds[1]);
}

static void test_a_reader_that_is_gone_is_an_error_and_no_deadlock(void)
{
	struct outbox outbox;
	int fds[2];

	assert(!pipe(fds));
	assert(!outbox_open(&outbox, fds[1]));
	close(fds[0]);
	post_blocks(&outbox);
	assert(outbox_close(&outbox) == -EPIPE);
	close(fds[1]);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	alarm(60);
	test_all_blocks_arrive_in_order();
	test_a_reader_that_is_gone_is_an_error_and_no_deadlock();
	return 0;
}
