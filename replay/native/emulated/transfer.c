/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "transfer.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "capabilities.h"

/* ---- an image in a file ---- */

static int transfer_file(const struct server *server, struct emulated_io *io)
{
	const struct image *image = server->image;

	switch (io->op) {
	case OP_READ:
	case OP_WRITE:
		return io->untimed_data ? 0 : image_file_transfer(image, io->op == OP_WRITE, io->offset_bytes, io->buffer,
								  io->length_bytes);
	case OP_DISCARD:
		return image_file_punch(image, io->offset_bytes, io->length_bytes);
	case OP_WRITE_ZEROES:
		return image_file_zero(image, io->offset_bytes, io->length_bytes);
	default:
		return image_file_flush(image);
	}
}

static void *transfer_files(void *argument)
{
	struct server *server = argument;

	capabilities_limit(0);
	pthread_mutex_lock(&server->lock);
	for (;;) {
		struct emulated_io *io;

		while (!server->count && !server->stopping)
			pthread_cond_wait(&server->queued, &server->lock);
		if (!server->count)
			break;
		io = server->queue[server->first];
		server->first = (server->first + 1) % DELAY_SLOTS;
		server->count--;
		pthread_mutex_unlock(&server->lock);
		io->error = transfer_file(server, io);
		delay_ready(server->delay, io);
		pthread_mutex_lock(&server->lock);
	}
	pthread_mutex_unlock(&server->lock);
	return NULL;
}

static void queue_transfer(struct server *server, struct emulated_io *io)
{
	pthread_mutex_lock(&server->lock);
	server->queue[(server->first + server->count++) % DELAY_SLOTS] = io;
	pthread_cond_signal(&server->queued);
	pthread_mutex_unlock(&server->lock);
}

/* ---- an image in memory ---- */

static void transfer_memory(struct server *server, const struct emulated_io *io)
{
	pthread_mutex_lock(&server->image_lock);
	if (io->op == OP_WRITE)
		image_write(server->image, io->offset_bytes, io->data, io->length_bytes);
	else
		image_zero(server->image, io->offset_bytes, io->length_bytes);
	pthread_mutex_unlock(&server->image_lock);
}

/* ---- I/Os ---- */

bool server_accepts(const struct server *server, const struct emulated_io *io)
{
	uint64_t size_bytes = (uint64_t)server->image->size_bytes;
	uint64_t offset_bytes = (uint64_t)io->offset_bytes, length_bytes = (uint64_t)io->length_bytes;

	if (io->op <= OP_WRITE && length_bytes > IMAGE_MAX_IO_BYTES)
		return false;
	return offset_bytes <= size_bytes && length_bytes <= size_bytes - offset_bytes;
}

static bool is_of_calibration(const struct server *server, const struct emulated_io *io)
{
	return io->op == OP_WRITE && atomic_load(&server->calibrating) && io->length_bytes >= CALIBRATION_MARK_BYTES &&
	       !memcmp(io->data, server->mark, sizeof(server->mark));
}

/* In memory a read takes its data when it is sent. */
static bool needs_transfer(const struct server *server, const struct emulated_io *io)
{
	if (image_is_file(server->image))
		return true;
	return (io->op == OP_WRITE && !io->untimed_data) || io->op == OP_DISCARD || io->op == OP_WRITE_ZEROES;
}

void server_take(struct server *server, struct emulated_io *io)
{
	bool transfers;

	io->untimed_data = is_of_calibration(server, io);
	transfers = needs_transfer(server, io);
	io->ready = !transfers;
	/* Before the copy of a large write, so that what arrives meanwhile comes after it in the model, too. */
	delay_submit(server->delay, io);
	if (!transfers)
		return; /* it may be sent already, and its slot in use again */
	if (image_is_file(server->image)) {
		queue_transfer(server, io);
		return;
	}
	transfer_memory(server, io);
	delay_ready(server->delay, io);
}

/* ---- begin and end ---- */

static char *locked_buffer(size_t bytes)
{
	char *buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return buffer == MAP_FAILED ? NULL : buffer;
}

static int start_workers(struct server *server)
{
	size_t slots = server->delay->slots;

	server->file_buffers = locked_buffer(slots * IMAGE_MAX_IO_BYTES);
	if (!server->file_buffers)
		return -ENOMEM;
	for (size_t i = 0; i < slots; i++)
		server->delay->ios[i].buffer = server->file_buffers + i * IMAGE_MAX_IO_BYTES;
	for (; server->worker_count < TRANSFER_THREADS; server->worker_count++) {
		int err = pthread_create(&server->workers[server->worker_count], NULL, transfer_files, server);

		if (err)
			return -err;
	}
	return 0;
}

int server_start(struct server *server, struct delay *delay, struct image *image)
{
	server->delay = delay;
	server->image = image;
	pthread_mutex_init(&server->lock, NULL);
	pthread_mutex_init(&server->image_lock, NULL);
	pthread_cond_init(&server->queued, NULL);
	if (getrandom(server->mark, sizeof(server->mark), 0) != sizeof(server->mark))
		return -EIO;
	server->buffers = locked_buffer(SERVER_READERS * IMAGE_MAX_IO_BYTES);
	if (!server->buffers)
		return -ENOMEM;
	return image_is_file(image) ? start_workers(server) : 0;
}

void server_stop(struct server *server)
{
	pthread_mutex_lock(&server->lock);
	server->stopping = true;
	pthread_cond_broadcast(&server->queued);
	pthread_mutex_unlock(&server->lock);
	for (unsigned i = 0; i < server->worker_count; i++)
		pthread_join(server->workers[i], NULL);
	if (server->buffers)
		munmap(server->buffers, SERVER_READERS * IMAGE_MAX_IO_BYTES);
	if (server->file_buffers)
		munmap(server->file_buffers, server->delay->slots * IMAGE_MAX_IO_BYTES);
	issue_times_end(&server->issue_times);
}
