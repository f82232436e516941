/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "outbox.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BLOCK_COUNT 32 /* half a million rows, 29 MB where all are in use */

static void *must(void *memory)
{
	/* A helper without memory for a message can keep no promise about the trace. */
	if (!memory)
		abort();
	return memory;
}

static int write_message(int fd, const struct message *message)
{
	const void *columns[ROW_COLUMNS];

	if (!message->block)
		return block_write_json(fd, message->kind, message->json);
	row_columns(message->block, columns);
	return block_write_rows(fd, &row_layout, message->block->rows, columns);
}

static void put_back(struct outbox *outbox, struct row_block *block)
{
	block->rows = 0;
	block->next = outbox->free;
	outbox->free = block;
	pthread_cond_signal(&outbox->returned);
}

static void note_error(struct outbox *outbox, int err)
{
	uint64_t one = 1;

	outbox->error = err;
	if (write(outbox->failed_fd, &one, sizeof(one)) < 0)
		return; /* only EAGAIN is possible: it is readable already */
}

static void *write_all(void *argument)
{
	struct outbox *outbox = argument;

	pthread_mutex_lock(&outbox->lock);
	for (;;) {
		struct message *message = outbox->first;

		if (!message) {
			if (outbox->closed)
				break;
			pthread_cond_wait(&outbox->posted, &outbox->lock);
			continue;
		}
		outbox->first = message->next;
		if (!outbox->first)
			outbox->last = &outbox->first;
		/* After a failure the blocks still go round, so that the drain can end. */
		if (!outbox->error) {
			int err;

			pthread_mutex_unlock(&outbox->lock);
			err = write_message(outbox->fd, message);
			pthread_mutex_lock(&outbox->lock);
			if (err)
				note_error(outbox, err);
		}
		if (message->block)
			put_back(outbox, message->block);
		free(message->json);
		free(message);
	}
	pthread_mutex_unlock(&outbox->lock);
	return NULL;
}

int outbox_open(struct outbox *outbox, int fd)
{
	*outbox = (struct outbox){ .fd = fd };
	outbox->last = &outbox->first;
	outbox->failed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (outbox->failed_fd < 0)
		return -errno;
	pthread_mutex_init(&outbox->lock, NULL);
	pthread_cond_init(&outbox->posted, NULL);
	pthread_cond_init(&outbox->returned, NULL);
	for (int i = 0; i < BLOCK_COUNT; i++)
		put_back(outbox, must(malloc(sizeof(struct row_block))));
	return -pthread_create(&outbox->thread, NULL, write_all, outbox);
}

struct row_block *outbox_take(struct outbox *outbox)
{
	struct row_block *block;

	pthread_mutex_lock(&outbox->lock);
	while (!outbox->free)
		pthread_cond_wait(&outbox->returned, &outbox->lock);
	block = outbox->free;
	outbox->free = block->next;
	pthread_mutex_unlock(&outbox->lock);
	return block;
}

static void post(struct outbox *outbox, struct message message)
{
	struct message *copy = must(malloc(sizeof(*copy)));

	*copy = message;
	pthread_mutex_lock(&outbox->lock);
	*outbox->last = copy;
	outbox->last = &copy->next;
	pthread_cond_signal(&outbox->posted);
	pthread_mutex_unlock(&outbox->lock);
}

void outbox_post_rows(struct outbox *outbox, struct row_block *block)
{
	post(outbox, (struct message){ .kind = BLOCK_ROWS, .block = block });
}

void outbox_post_json(struct outbox *outbox, enum block_kind kind, char *json)
{
	post(outbox, (struct message){ .kind = kind, .json = must(json) });
}

int outbox_close(struct outbox *outbox)
{
	pthread_mutex_lock(&outbox->lock);
	outbox->closed = true;
	pthread_cond_signal(&outbox->posted);
	pthread_mutex_unlock(&outbox->lock);
	pthread_join(outbox->thread, NULL);
	while (outbox->free) {
		struct row_block *block = outbox->free;

		outbox->free = block->next;
		free(block);
	}
	close(outbox->failed_fd);
	return outbox->error;
}
