/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capabilities.h"
#include "error.h"
#include "run/clock.h"

#define PAGE_BYTES 4096
#define HEADER_BYTES (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))
#define FOREVER_S 3600

/* The kernel's default of 12 background requests halves the throughput of a deep queue. */
#define MAX_BACKGROUND 256

int fuse_mount(struct fuse_server *server, const char *path, uint64_t inode_number)
{
	char options[128];

	memset(server, 0, sizeof(*server));
	snprintf(server->path, sizeof(server->path), "%s", path);
	server->inode_number = inode_number;
	server->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (server->fd < 0)
		return report_error(errno == ENOENT || errno == ENODEV ? "load its module: modprobe fuse" : NULL,
				    "cannot open /dev/fuse: %s", strerror(errno));
	snprintf(options, sizeof(options), "fd=%d,rootmode=%o,user_id=0,group_id=0,allow_other,max_read=%u", server->fd,
		 S_IFREG | 0600, IMAGE_MAX_IO_BYTES);
	if (!mount("blkreel", path, "fuse.blkreel", MS_NOSUID | MS_NODEV | MS_NOEXEC, options))
		return 0;
	report_error(NULL, "cannot mount the emulated drive: %s", strerror(errno));
	close(server->fd);
	return -1;
}

/* ---- replies ---- */

static void send_parts(struct fuse_server *server, uint64_t unique, struct iovec *parts, int count)
{
	struct fuse_out_header header = { .len = sizeof(header), .unique = unique };

	parts[0] = (struct iovec){ &header, sizeof(header) };
	for (int i = 1; i < count; i++)
		header.len += (uint32_t)parts[i].iov_len;
	/* Fails if the request was interrupted or the file unmounted: nobody waits for the reply. */
	if (writev(server->fd, parts, count) < 0)
		return;
}

static void send_data(struct fuse_server *server, uint64_t unique, void *data, size_t bytes)
{
	struct iovec parts[2] = { { 0 }, { data, bytes } };

	send_parts(server, unique, parts, bytes ? 2 : 1);
}

static void send_error(struct fuse_server *server, uint64_t unique, int error)
{
	struct fuse_out_header header = { .len = sizeof(header), .error = error, .unique = unique };

	if (write(server->fd, &header, sizeof(header)) < 0)
		return;
}

static void send_read(struct fuse_server *server, const struct emulated_io *io)
{
	struct iovec parts[1 + IMAGE_MAX_PARTS];

	if (io->buffer)
		send_data(server, io->unique, io->buffer, io->length_bytes);
	else
		send_parts(server, io->unique, parts,
			   1 + image_parts(server->image, io->offset_bytes, io->length_bytes, parts + 1));
}

static void send_io(void *transport, const struct emulated_io *io)
{
	struct fuse_server *server = transport;
	struct fuse_write_out written = { .size = (uint32_t)io->length_bytes };

	if (io->error)
		send_error(server, io->unique, io->error);
	else if (io->op == OP_READ)
		send_read(server, io);
	else if (io->op == OP_WRITE)
		send_data(server, io->unique, &written, sizeof(written));
	else
		send_error(server, io->unique, 0);
}

/* ---- transfer of data ---- */

static int transfer_file(struct fuse_server *server, struct emulated_io *io)
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
	struct fuse_server *server = argument;

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

static void queue_transfer(struct fuse_server *server, struct emulated_io *io)
{
	pthread_mutex_lock(&server->lock);
	server->queue[(server->first + server->count++) % DELAY_SLOTS] = io;
	pthread_cond_signal(&server->queued);
	pthread_mutex_unlock(&server->lock);
}

/* In memory: a read takes its data when it is sent. */
static void transfer_memory(struct fuse_server *server, const struct emulated_io *io, const char *data)
{
	if (io->op == OP_WRITE && !io->untimed_data)
		image_write(server->image, io->offset_bytes, data, io->length_bytes);
	else if (io->op == OP_DISCARD || io->op == OP_WRITE_ZEROES)
		image_zero(server->image, io->offset_bytes, io->length_bytes);
}

/* ---- requests ---- */

static bool is_in_image(const struct fuse_server *server, uint64_t offset_bytes, uint64_t length_bytes)
{
	uint64_t size_bytes = (uint64_t)server->image->size_bytes;

	return offset_bytes <= size_bytes && length_bytes <= size_bytes - offset_bytes;
}

/* Fills in the I/O of a request. Returns 0, or a negative errno to answer with. */
static int parse_io(struct fuse_server *server, struct emulated_io *io, uint32_t opcode, const void *argument,
		    size_t data_bytes)
{
	const struct fuse_read_in *read = argument;
	const struct fuse_write_in *write = argument;
	const struct fuse_fallocate_in *allocate = argument;

	switch (opcode) {
	case FUSE_READ:
		io->op = OP_READ;
		io->offset_bytes = (int64_t)read->offset;
		io->length_bytes = read->size;
		break;
	case FUSE_WRITE:
		io->op = OP_WRITE;
		io->offset_bytes = (int64_t)write->offset;
		io->length_bytes = write->size;
		if (write->size > data_bytes)
			return -EIO;
		break;
	case FUSE_FALLOCATE:
		if (allocate->mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
			io->op = OP_DISCARD;
		else if (allocate->mode == (FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE))
			io->op = OP_WRITE_ZEROES;
		else
			return -EOPNOTSUPP;
		io->offset_bytes = (int64_t)allocate->offset;
		io->length_bytes = (int64_t)allocate->length;
		break;
	default:
		io->op = OP_FLUSH;
		return 0;
	}
	if (io->op <= OP_WRITE && io->length_bytes > IMAGE_MAX_IO_BYTES)
		return -EINVAL;
	return is_in_image(server, io->offset_bytes, io->length_bytes) ? 0 : -EINVAL;
}

/* Returns whether the slot is in use now. */
static bool take_io(struct fuse_server *server, struct emulated_io *io, const struct fuse_in_header *header,
		    const char *data, size_t data_bytes, int64_t arrived_ns)
{
	int error = parse_io(server, io, header->opcode, header + 1, data_bytes);

	if (error) {
		send_error(server, header->unique, error);
		return false;
	}
	io->unique = header->unique;
	io->arrived_ns = arrived_ns;
	io->untimed_data = io->op == OP_WRITE && atomic_load(&server->calibrating) &&
			   io->length_bytes >= CALIBRATION_MARK_BYTES && !memcmp(data, server->mark, sizeof(server->mark));
	if (image_is_file(server->image)) {
		io->ready = false;
		delay_submit(server->delay, io);
		queue_transfer(server, io);
	} else {
		transfer_memory(server, io, data);
		io->ready = true;
		delay_submit(server->delay, io);
	}
	return true;
}

static void send_init(struct fuse_server *server, uint64_t unique, const struct fuse_init_in *init)
{
	const uint32_t flags = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_ASYNC_DIO | FUSE_MAX_PAGES;
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = init->minor < FUSE_KERNEL_MINOR_VERSION ? init->minor : FUSE_KERNEL_MINOR_VERSION,
		.max_readahead = init->max_readahead,
		.flags = init->flags & flags,
		.max_background = MAX_BACKGROUND,
		.congestion_threshold = MAX_BACKGROUND,
		.max_write = IMAGE_MAX_IO_BYTES,
		.time_gran = 1,
		.max_pages = IMAGE_MAX_IO_BYTES / PAGE_BYTES,
	};

	send_data(server, unique, &out, sizeof(out));
	/* The kernel takes the limits above from a thread that has CAP_SYS_ADMIN. */
	capabilities_limit(0);
}

static void send_attributes(struct fuse_server *server, uint64_t unique)
{
	struct fuse_attr_out out = {
		.attr_valid = FOREVER_S,
		.attr = { .ino = server->inode_number, .size = server->image->size_bytes,
			  .blocks = server->image->size_bytes / 512, .mode = S_IFREG | 0600, .nlink = 1,
			  .blksize = PAGE_BYTES },
	};

	send_data(server, unique, &out, sizeof(out));
}

static void send_statfs(struct fuse_server *server, uint64_t unique)
{
	/* The loop device discards in units of the block size. */
	struct fuse_statfs_out out = {
		.st = { .blocks = server->image->size_bytes / PAGE_BYTES, .files = 1, .bsize = PAGE_BYTES, .namelen = 255,
			.frsize = PAGE_BYTES },
	};

	send_data(server, unique, &out, sizeof(out));
}

static void send_open(struct fuse_server *server, uint64_t unique)
{
	uint32_t flags = FOPEN_DIRECT_IO;
	struct fuse_open_out out;

#ifdef FOPEN_NOFLUSH
	flags |= FOPEN_NOFLUSH;
#endif
#ifdef FOPEN_PARALLEL_DIRECT_WRITES
	flags |= FOPEN_PARALLEL_DIRECT_WRITES;
#endif
	out = (struct fuse_open_out){ .fh = 1, .open_flags = flags };
	atomic_fetch_add(&server->opens, 1);
	send_data(server, unique, &out, sizeof(out));
}

/* All but I/O is answered at once. */
static void answer(struct fuse_server *server, const struct fuse_in_header *header)
{
	switch (header->opcode) {
	case FUSE_INIT:
		send_init(server, header->unique, (const struct fuse_init_in *)(header + 1));
		return;
	case FUSE_GETATTR:
	case FUSE_SETATTR:
		send_attributes(server, header->unique);
		return;
	case FUSE_OPEN:
		send_open(server, header->unique);
		return;
	case FUSE_STATFS:
		send_statfs(server, header->unique);
		return;
	case FUSE_RELEASE:
		atomic_fetch_sub(&server->opens, 1);
		send_error(server, header->unique, 0);
		return;
	case FUSE_FLUSH:
	case FUSE_ACCESS:
	case FUSE_DESTROY:
		send_error(server, header->unique, 0);
		return;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return; /* no answer */
	default:
		send_error(server, header->unique, -ENOSYS);
	}
}

static bool is_io(uint32_t opcode)
{
	return opcode == FUSE_READ || opcode == FUSE_WRITE || opcode == FUSE_FSYNC || opcode == FUSE_FALLOCATE;
}

static void *read_requests(void *argument)
{
	struct fuse_server *server = argument;
	struct emulated_io *io = delay_take(server->delay);
	union {
		struct fuse_in_header fields;
		char bytes[HEADER_BYTES];
	} header;

	for (;;) {
		/* So that the data of a write is aligned. No other request is longer than the header of a write and its fields. */
		char *data = io->buffer ? io->buffer : server->buffer;
		struct iovec parts[2] = { { header.bytes, HEADER_BYTES }, { data, IMAGE_MAX_IO_BYTES } };
		ssize_t bytes = readv(server->fd, parts, 2);
		int64_t arrived_ns = monotonic_ns();

		if (bytes < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
			continue; /* ENOENT: the request was canceled */
		if (bytes < (ssize_t)sizeof(header.fields))
			break; /* unmounted or aborted */
		if (!is_io(header.fields.opcode))
			answer(server, &header.fields);
		else if (take_io(server, io, &header.fields, data, bytes > (ssize_t)HEADER_BYTES ? bytes - HEADER_BYTES : 0,
				 arrived_ns))
			io = delay_take(server->delay);
	}
	atomic_store(&server->ended, true);
	return NULL;
}

/* ---- begin and end ---- */

static char *locked_buffer(size_t bytes)
{
	char *buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return buffer == MAP_FAILED ? NULL : buffer;
}

static int start_workers(struct fuse_server *server)
{
	size_t slots = server->delay->slots;

	server->file_buffers = locked_buffer(slots * IMAGE_MAX_IO_BYTES);
	if (!server->file_buffers)
		return -ENOMEM;
	for (size_t i = 0; i < slots; i++)
		server->delay->ios[i].buffer = server->file_buffers + i * IMAGE_MAX_IO_BYTES;
	for (; server->worker_count < FUSE_FILE_THREADS; server->worker_count++) {
		int err = pthread_create(&server->workers[server->worker_count], NULL, transfer_files, server);

		if (err)
			return -err;
	}
	return 0;
}

int fuse_start(struct fuse_server *server, struct delay *delay, struct image *image)
{
	int err = 0;

	server->delay = delay;
	server->image = image;
	pthread_mutex_init(&server->lock, NULL);
	pthread_cond_init(&server->queued, NULL);
	if (getrandom(server->mark, sizeof(server->mark), 0) != sizeof(server->mark))
		return -EIO;
	server->buffer = locked_buffer(IMAGE_MAX_IO_BYTES);
	if (!server->buffer)
		return -ENOMEM;
	if (image_is_file(image))
		err = start_workers(server);
	if (!err)
		err = delay_start(delay, send_io, server);
	if (!err)
		err = -pthread_create(&server->reader, NULL, read_requests, server);
	server->has_reader = !err;
	return err;
}

void fuse_stop(struct fuse_server *server)
{
	/* Lazily, because a program that has the file open would keep it. The kernel ends the reader's read then. */
	umount2(server->path, MNT_DETACH);
	if (server->has_reader)
		pthread_join(server->reader, NULL);
	pthread_mutex_lock(&server->lock);
	server->stopping = true;
	pthread_cond_broadcast(&server->queued);
	pthread_mutex_unlock(&server->lock);
	for (unsigned i = 0; i < server->worker_count; i++)
		pthread_join(server->workers[i], NULL);
	delay_stop(server->delay);
	if (server->buffer)
		munmap(server->buffer, IMAGE_MAX_IO_BYTES);
	if (server->file_buffers)
		munmap(server->file_buffers, server->delay->slots * IMAGE_MAX_IO_BYTES);
	close(server->fd);
}
