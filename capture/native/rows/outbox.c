/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "outbox.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BLOCK_COUNT 32 /* half a million rows, 36 MiB, with files 44 MiB, if all are in use */
#define RESERVE_DIVISOR 2 /* a row takes 69 bytes in the spool; the trace and its sorting take at most half */

static struct row_block *rows_of(struct message *message)
{
	return message->kind == BLOCK_ROWS ? (struct row_block *)message : NULL;
}

static void count_rows(struct written *written, const struct row_block *block)
{
	written->rows += block->rows;
	for (uint32_t i = 0; i < block->rows; i++) {
		uint8_t op = (uint8_t)block->op[i];

		if (op >= OP_COUNT)
			continue;
		written->ios[op]++;
		written->bytes[op] += (uint64_t)block->length_bytes[i];
	}
}

static int write_rows(struct outbox *outbox, const struct row_block *block)
{
	const void *columns[ROW_COLUMNS];
	int err;

	if (outbox->live)
		live_add(outbox->live, block);
	if (!block->rows)
		return 0;
	row_columns(block, columns);
	err = spool_file_write_rows(&outbox->file, &row_layout, block->rows, columns);
	if (!err)
		count_rows(&outbox->written, block);
	return err;
}

static int write_json(struct outbox *outbox, const struct message *message)
{
	return spool_file_write_json(&outbox->file, message->kind, message->json);
}

static void put_back(struct outbox *outbox, struct row_block *block)
{
	block->rows = 0;
	block->message.next = (struct message *)outbox->free;
	outbox->free = block;
	pthread_cond_signal(&outbox->returned);
}

static void release(struct outbox *outbox, struct message *message)
{
	struct row_block *block = rows_of(message);

	if (block) {
		put_back(outbox, block);
		return;
	}
	free(message->json);
	free(message);
}

/* Called with the lock held. */
static void fail(struct outbox *outbox, int err)
{
	if (outbox->error)
		return;
	outbox->error = err;
	eventfd_write(outbox->failed_fd, 1);
}

/* After a failure row blocks only circulate, so that the drain can end. Called with the lock held, which it drops. */
static void process(struct outbox *outbox, struct message *message)
{
	struct row_block *block = rows_of(message);
	int err = block ? outbox->error : 0;

	if (!err) {
		pthread_mutex_unlock(&outbox->lock);
		err = block ? write_rows(outbox, block) : write_json(outbox, message);
		pthread_mutex_lock(&outbox->lock);
	}
	if (err && !outbox->error)
		spool_file_release_reserve(&outbox->file);
	if (err)
		fail(outbox, err);
	if (err && block)
		outbox->written.unwritten_rows += block->rows;
	release(outbox, message);
}

static void *write_queue(void *argument)
{
	struct outbox *outbox = argument;

	pthread_mutex_lock(&outbox->lock);
	while (outbox->first || !outbox->closed) {
		struct message *message = outbox->first;

		if (!message) {
			pthread_cond_wait(&outbox->posted, &outbox->lock);
			continue;
		}
		outbox->first = message->next;
		if (!outbox->first)
			outbox->last = &outbox->first;
		process(outbox, message);
	}
	pthread_mutex_unlock(&outbox->lock);
	return NULL;
}

static int start(struct outbox *outbox)
{
	int err;

	if (outbox->failed_fd < 0)
		return -errno;
	for (int i = 0; i < BLOCK_COUNT; i++) {
		struct row_block *block = malloc(sizeof(*block));

		if (!block)
			return -ENOMEM;
		block->message = (struct message){ .kind = BLOCK_ROWS };
		put_back(outbox, block);
	}
	err = spool_file_write_layout(&outbox->file, &row_layout);
	if (err)
		return err;
	err = pthread_create(&outbox->thread, NULL, write_queue, outbox);
	outbox->running = !err;
	return -err;
}

int outbox_init(struct outbox *outbox, int fd, int reserve_fd, struct live *live)
{
	int err;

	*outbox = (struct outbox){ .live = live };
	spool_file_init(&outbox->file, fd, reserve_fd, RESERVE_DIVISOR);
	outbox->last = &outbox->first;
	outbox->failed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&outbox->lock, NULL);
	pthread_cond_init(&outbox->posted, NULL);
	pthread_cond_init(&outbox->returned, NULL);
	err = start(outbox);
	if (err)
		outbox_deinit(outbox);
	return err;
}

void outbox_deinit(struct outbox *outbox)
{
	if (!outbox->last)
		return; /* not initialized */
	outbox_finish(outbox);
	while (outbox->first) {
		struct message *message = outbox->first;

		outbox->first = message->next;
		release(outbox, message);
	}
	while (outbox->free) {
		struct row_block *block = outbox->free;

		outbox->free = (struct row_block *)block->message.next;
		free(block);
	}
	if (outbox->failed_fd >= 0)
		close(outbox->failed_fd);
	pthread_cond_destroy(&outbox->returned);
	pthread_cond_destroy(&outbox->posted);
	pthread_mutex_destroy(&outbox->lock);
	outbox->last = NULL;
}

struct row_block *outbox_take(struct outbox *outbox)
{
	struct row_block *block;

	pthread_mutex_lock(&outbox->lock);
	while (!outbox->free)
		pthread_cond_wait(&outbox->returned, &outbox->lock);
	block = outbox->free;
	outbox->free = (struct row_block *)block->message.next;
	pthread_mutex_unlock(&outbox->lock);
	return block;
}

static void post(struct outbox *outbox, struct message *message)
{
	message->next = NULL;
	pthread_mutex_lock(&outbox->lock);
	*outbox->last = message;
	outbox->last = &message->next;
	pthread_cond_signal(&outbox->posted);
	pthread_mutex_unlock(&outbox->lock);
}

void outbox_post_rows(struct outbox *outbox, struct row_block *block)
{
	post(outbox, &block->message);
}

void outbox_post_json(struct outbox *outbox, enum block_kind kind, char *json)
{
	struct message *message = json ? malloc(sizeof(*message)) : NULL;

	if (message) {
		if (outbox->live)
			live_add_names(outbox->live, json);
		*message = (struct message){ .kind = kind, .json = json };
		post(outbox, message);
		return;
	}
	free(json);
	pthread_mutex_lock(&outbox->lock);
	fail(outbox, -ENOMEM);
	pthread_mutex_unlock(&outbox->lock);
}

int outbox_finish(struct outbox *outbox)
{
	if (!outbox->running)
		return outbox->error;
	pthread_mutex_lock(&outbox->lock);
	outbox->closed = true;
	pthread_cond_signal(&outbox->posted);
	pthread_mutex_unlock(&outbox->lock);
	pthread_join(outbox->thread, NULL);
	outbox->running = false;
	return outbox->error;
}
