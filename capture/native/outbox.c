/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "outbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_COUNT 32 /* half a million rows, 29 MB where all are in use */
#define RESERVE_SHARE 2 /* a row takes 69 bytes here, and at the end 8 in the trace and 16 to find what it waited for */
#define RESERVE_STEP_BYTES (64ull << 10)

static void *must(void *memory)
{
	/* A helper without memory for a message can keep no promise about the trace. */
	if (!memory)
		abort();
	return memory;
}

/* Of what the file holds on the disk, which may be less than its length: its head may have been punched out. */
static int keep_reserve(struct outbox *outbox)
{
	struct stat held;
	uint64_t wanted;

	if (outbox->reserve_fd < 0 || fstat(outbox->fd, &held))
		return 0;
	wanted = (uint64_t)held.st_blocks * 512 / RESERVE_SHARE;
	if (wanted < outbox->reserved_bytes)
		return 0;
	wanted = (wanted / RESERVE_STEP_BYTES + 1 + wanted / RESERVE_STEP_BYTES / 8) * RESERVE_STEP_BYTES;
	if (fallocate(outbox->reserve_fd, 0, 0, wanted)) {
		if (errno == ENOSPC || errno == EDQUOT)
			return -errno;
		outbox->reserve_fd = -1; /* this file system keeps nothing free */
		return 0;
	}
	outbox->reserved_bytes = wanted;
	return 0;
}

static void count_rows(struct written *written, const struct row_block *block)
{
	written->rows += block->rows;
	for (uint32_t i = 0; i < block->rows; i++) {
		uint8_t op = block->op[i];

		if (op >= OP_COUNT)
			continue;
		written->ios[op]++;
		written->bytes[op] += block->length_bytes[i];
	}
}

static uint64_t message_bytes(const struct message *message)
{
	return sizeof(struct block_header) +
	       (message->block ? block_rows_bytes(&row_layout, message->block->rows) : strlen(message->json));
}

static void watch_message(struct live *live, const struct message *message)
{
	if (message->block)
		live_add(live, message->block);
	else
		live_keep_names(live, message->json);
}

static int write_message(struct outbox *outbox, const struct message *message)
{
	bool empty = message->block && !message->block->rows;
	const void *columns[ROW_COLUMNS];
	int err = outbox->error || empty ? 0 : keep_reserve(outbox);

	if (!err && outbox->live)
		watch_message(outbox->live, message);
	if (err || empty)
		return err;
	if (message->block) {
		row_columns(message->block, columns);
		err = block_write_rows(outbox->fd, &row_layout, message->block->rows, columns);
	} else {
		err = block_write_json(outbox->fd, message->kind, message->json);
	}
	if (err)
		return err;
	if (message->block)
		count_rows(&outbox->written, message->block);
	atomic_fetch_add_explicit(&outbox->whole_bytes, message_bytes(message), memory_order_release);
	return 0;
}

/* What is left of a block that was cut would hide all that is written behind it. */
static void cut_back(struct outbox *outbox)
{
	uint64_t whole = atomic_load(&outbox->whole_bytes);

	if (!ftruncate(outbox->fd, whole))
		lseek(outbox->fd, whole, SEEK_SET);
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
	/* Room for what is still to be said: names of what was written before, and the end block. */
	if (outbox->reserved_bytes > RESERVE_STEP_BYTES &&
	    !ftruncate(outbox->reserve_fd, outbox->reserved_bytes - RESERVE_STEP_BYTES))
		outbox->reserved_bytes -= RESERVE_STEP_BYTES;
	if (write(outbox->failed_fd, &one, sizeof(one)) < 0)
		return; /* only EAGAIN is possible: it is readable already */
}

/* After a failure rows only go round, so that the drain can end. Called and left with the lock held. */
static void write_or_count(struct outbox *outbox, const struct message *message)
{
	int err = outbox->error;

	if (!err || !message->block) {
		pthread_mutex_unlock(&outbox->lock);
		err = write_message(outbox, message);
		if (err)
			cut_back(outbox);
		pthread_mutex_lock(&outbox->lock);
	}
	if (err && message->block)
		outbox->written.unwritten_rows += message->block->rows;
	if (err && !outbox->error)
		note_error(outbox, err);
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
		write_or_count(outbox, message);
		if (message->block)
			put_back(outbox, message->block);
		free(message->json);
		free(message);
	}
	pthread_mutex_unlock(&outbox->lock);
	return NULL;
}

int outbox_open(struct outbox *outbox, int fd, int reserve_fd, struct live *live)
{
	off_t at = lseek(fd, 0, SEEK_CUR);

	*outbox = (struct outbox){ .fd = fd, .reserve_fd = reserve_fd, .live = live };
	atomic_store(&outbox->whole_bytes, at < 0 ? 0 : at);
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
