/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A FUSE file system of one regular file, its root, that holds the image of an emulated drive. The protocol is spoken
 * directly, for control over the time of each reply; a loop device with direct I/O over the file is the drive.
 */
#include "backend.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "capabilities.h"
#include "cleanup.h"
#include "error.h"
#include "loop_device.h"
#include "run/clock.h"
#include "run/host.h"

/* Of a C library before 2.36. */
#ifndef FSOPEN_CLOEXEC
#define FSOPEN_CLOEXEC 1
#define FSCONFIG_CMD_CREATE 6
#define FSMOUNT_CLOEXEC 1
#endif

#define PAGE_BYTES 4096
#define HEADER_BYTES (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))
#define FOREVER_S 3600

/* The kernel's default of 12 background requests halves the throughput of a deep queue. */
#define MAX_BACKGROUND 256

struct fuse {
	struct backend base;
	int fd;
	char path[256]; /* the mounted file */
	uint64_t inode_number;
	struct server *server;
	struct loop_device loop;
	atomic_int opens;
	struct reader {
		struct fuse *fuse;
		pthread_t thread;
	} readers[SERVER_READERS];
	unsigned reader_count;
	int abort_fd; /* in the watchdog; -1: the kernel has no fusectl */
};

static struct fuse *fuse_of(struct backend *backend)
{
	return (struct fuse *)backend;
}

/* ---- replies ---- */

static void send_parts(struct fuse *fuse, uint64_t unique, struct iovec *parts, int count)
{
	struct fuse_out_header header = { .len = sizeof(header), .unique = unique };

	parts[0] = (struct iovec){ &header, sizeof(header) };
	for (int i = 1; i < count; i++)
		header.len += (uint32_t)parts[i].iov_len;
	/* Fails if the request was interrupted or the file unmounted: nobody waits for the reply. */
	if (writev(fuse->fd, parts, count) < 0)
		return;
}

static void send_data(struct fuse *fuse, uint64_t unique, void *data, size_t bytes)
{
	struct iovec parts[2] = { { 0 }, { data, bytes } };

	send_parts(fuse, unique, parts, bytes ? 2 : 1);
}

static void send_error(struct fuse *fuse, uint64_t unique, int error)
{
	struct fuse_out_header header = { .len = sizeof(header), .error = error, .unique = unique };

	if (write(fuse->fd, &header, sizeof(header)) < 0)
		return;
}

static void send_read(struct fuse *fuse, const struct emulated_io *io)
{
	struct iovec parts[1 + IMAGE_MAX_PARTS];

	if (io->buffer)
		send_data(fuse, io->unique, io->buffer, io->length_bytes);
	else
		send_parts(fuse, io->unique, parts,
			   1 + image_parts(fuse->server->image, io->offset_bytes, io->length_bytes, parts + 1));
}

static void send_io(void *backend, const struct emulated_io *io)
{
	struct fuse *fuse = backend;
	struct fuse_write_out written = { .size = (uint32_t)io->length_bytes };

	if (io->error)
		send_error(fuse, io->unique, io->error);
	else if (io->op == OP_READ)
		send_read(fuse, io);
	else if (io->op == OP_WRITE)
		send_data(fuse, io->unique, &written, sizeof(written));
	else
		send_error(fuse, io->unique, 0);
}

/* ---- requests ---- */

/* Fills in the I/O of a request. Returns 0, or a negative errno to answer with. */
static int parse_io(struct fuse *fuse, struct emulated_io *io, uint32_t opcode, const void *argument,
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
	return server_accepts(fuse->server, io) ? 0 : -EINVAL;
}

/* Returns whether the slot is in use now. */
static bool take_io(struct fuse *fuse, struct emulated_io *io, const struct fuse_in_header *header, size_t data_bytes,
		    int64_t arrived_ns)
{
	int error = parse_io(fuse, io, header->opcode, header + 1, data_bytes);

	if (error) {
		send_error(fuse, header->unique, error);
		return false;
	}
	io->unique = header->unique;
	io->arrived_ns = arrived_ns;
	server_take(fuse->server, io);
	return true;
}

static void send_init(struct fuse *fuse, uint64_t unique, const struct fuse_init_in *init)
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

	send_data(fuse, unique, &out, sizeof(out));
	/* The kernel takes the limits above from a thread that has CAP_SYS_ADMIN. */
	capabilities_limit(SERVING_CAPABILITIES);
}

static void send_attributes(struct fuse *fuse, uint64_t unique)
{
	struct fuse_attr_out out = {
		.attr_valid = FOREVER_S,
		.attr = { .ino = fuse->inode_number, .size = fuse->server->image->size_bytes,
			  .blocks = fuse->server->image->size_bytes / 512, .mode = S_IFREG | 0600, .nlink = 1,
			  .blksize = PAGE_BYTES },
	};

	send_data(fuse, unique, &out, sizeof(out));
}

static void send_statfs(struct fuse *fuse, uint64_t unique)
{
	/* The loop device discards in units of the block size. */
	struct fuse_statfs_out out = {
		.st = { .blocks = fuse->server->image->size_bytes / PAGE_BYTES, .files = 1, .bsize = PAGE_BYTES, .namelen = 255,
			.frsize = PAGE_BYTES },
	};

	send_data(fuse, unique, &out, sizeof(out));
}

static void send_open(struct fuse *fuse, uint64_t unique)
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
	atomic_fetch_add(&fuse->opens, 1);
	send_data(fuse, unique, &out, sizeof(out));
}

/* All but I/O is answered at once. */
static void answer(struct fuse *fuse, const struct fuse_in_header *header)
{
	switch (header->opcode) {
	case FUSE_INIT:
		send_init(fuse, header->unique, (const struct fuse_init_in *)(header + 1));
		return;
	case FUSE_GETATTR:
	case FUSE_SETATTR:
		send_attributes(fuse, header->unique);
		return;
	case FUSE_OPEN:
		send_open(fuse, header->unique);
		return;
	case FUSE_STATFS:
		send_statfs(fuse, header->unique);
		return;
	case FUSE_RELEASE:
		atomic_fetch_sub(&fuse->opens, 1);
		send_error(fuse, header->unique, 0);
		return;
	case FUSE_FLUSH:
	case FUSE_ACCESS:
	case FUSE_DESTROY:
		send_error(fuse, header->unique, 0);
		return;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return; /* no answer */
	default:
		send_error(fuse, header->unique, -ENOSYS);
	}
}

static bool is_io(uint32_t opcode)
{
	return opcode == FUSE_READ || opcode == FUSE_WRITE || opcode == FUSE_FSYNC || opcode == FUSE_FALLOCATE;
}

static void *read_requests(void *argument)
{
	const struct reader *reader = argument;
	struct fuse *fuse = reader->fuse;
	unsigned number = (unsigned)(reader - fuse->readers);
	struct emulated_io *io = delay_take(fuse->server->delay);
	struct realtime_share realtime;
	union {
		struct fuse_in_header fields;
		char bytes[HEADER_BYTES];
	} header;

	realtime_begin(&realtime, monotonic_ns());
	for (;;) {
		io->data = server_buffer(fuse->server, io, number);
		/* So that the data of a write is aligned. No other request is longer than the header of a write and its fields. */
		struct iovec parts[2] = { { header.bytes, HEADER_BYTES },
					  { io->data, IMAGE_MAX_IO_BYTES } };
		int64_t from_ns = monotonic_ns();
		ssize_t bytes = readv(fuse->fd, parts, 2);
		int64_t arrived_ns = monotonic_ns();

		realtime_review(&realtime, arrived_ns, arrived_ns - from_ns);
		if (bytes < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
			continue; /* ENOENT: the request was canceled */
		if (bytes < (ssize_t)sizeof(header.fields))
			break; /* unmounted or aborted */
		if (!is_io(header.fields.opcode))
			answer(fuse, &header.fields);
		else if (take_io(fuse, io, &header.fields, bytes > (ssize_t)HEADER_BYTES ? bytes - HEADER_BYTES : 0, arrived_ns))
			io = delay_take(fuse->server->delay);
	}
	atomic_store(&fuse->base.ended, true);
	return NULL;
}

/* ---- begin and end ---- */

#define OUTSIDE_CONTAINER "run it outside the container, or: docker run --privileged"

static int open_fuse(struct backend *backend, const char *path, uint64_t inode_number)
{
	struct fuse *fuse = fuse_of(backend);
	char options[128];

	snprintf(fuse->path, sizeof(fuse->path), "%s", path);
	fuse->inode_number = inode_number;
	fuse->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fuse->fd < 0)
		return report_error(errno == ENOENT || errno == ENODEV ? "load its module: modprobe fuse" :
				    errno == EPERM ? OUTSIDE_CONTAINER : NULL,
				    "cannot open /dev/fuse: %s", strerror(errno));
	snprintf(options, sizeof(options), "fd=%d,rootmode=%o,user_id=0,group_id=0,allow_other,max_read=%u", fuse->fd,
		 S_IFREG | 0600, IMAGE_MAX_IO_BYTES);
	if (!mount("blkreel", path, "fuse.blkreel", MS_NOSUID | MS_NODEV | MS_NOEXEC, options))
		return 0;
	report_error(errno == EPERM ? OUTSIDE_CONTAINER : NULL, "cannot mount the emulated drive: %s", strerror(errno));
	close(fuse->fd);
	return -1;
}

static void *read_more_requests(void *argument)
{
	capabilities_limit(SERVING_CAPABILITIES);
	return read_requests(argument);
}

static int start_reader(struct fuse *fuse)
{
	struct reader *reader = &fuse->readers[fuse->reader_count];
	int err;

	reader->fuse = fuse;
	err = -pthread_create(&reader->thread, NULL, fuse->reader_count ? read_more_requests : read_requests, reader);
	fuse->reader_count += !err;
	return err;
}

static int attach_fuse(struct backend *backend, struct server *server, struct watchdog_shared *shared)
{
	struct fuse *fuse = fuse_of(backend);
	int err;

	fuse->server = server;
	err = delay_start(server->delay, send_io, fuse);
	if (!err)
		err = start_reader(fuse);
	if (!err && loop_attach(&fuse->loop, fuse->path, server->image->offset_alignment))
		return -1;
	/* The first one has answered the kernel's first request, which takes a capability that the others do not need. */
	while (!err && fuse->reader_count < SERVER_READERS)
		err = start_reader(fuse);
	if (err)
		return report_error(NULL, "cannot start the threads of the drive: %s", strerror(-err));
	snprintf(backend->node, sizeof(backend->node), "%s", fuse->loop.node);
	atomic_store(&shared->device_number, fuse->loop.number);
	return 0;
}

static void detach_loop(struct backend *backend)
{
	struct fuse *fuse = fuse_of(backend);

	loop_detach(&fuse->loop, fuse->path);
}

static bool is_fuse_open(struct backend *backend)
{
	return atomic_load(&fuse_of(backend)->opens);
}

static void end_fuse(struct backend *backend)
{
	struct fuse *fuse = fuse_of(backend);

	/* Before the unmount, after which the kernel no longer names the file of the device. */
	detach_loop(backend);
	/* Lazily, because a program that has the file open would keep it. The kernel ends the reader's read then. */
	umount2(fuse->path, MNT_DETACH);
	while (fuse->reader_count)
		pthread_join(fuse->readers[--fuse->reader_count].thread, NULL);
	if (fuse->server) {
		server_stop(fuse->server);
		delay_stop(fuse->server->delay);
	}
	close(fuse->fd);
}

/* ---- in the watchdog ---- */

/* The root of fusectl, in a mount that no directory has; -1: the kernel has no fusectl. */
static int open_fusectl(void)
{
	int context CLEANUP_CLOSE = (int)syscall(SYS_fsopen, "fusectl", FSOPEN_CLOEXEC);

	if (context < 0 || syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		return -1;
	return (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0);
}

/* Opened in advance, because a process under memory pressure may not be able to. */
static int open_abort(const char *path)
{
	int connections CLEANUP_CLOSE = open_fusectl();
	char name[32];
	struct statx status;

	/* Without a request to the server, which may not run yet. */
	if (connections < 0 || statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, 0, &status))
		return -1;
	snprintf(name, sizeof(name), "%u/abort", status.stx_dev_minor);
	return openat(connections, name, O_WRONLY | O_CLOEXEC);
}

/* The death of the server ends the connection only if nobody else has it open. */
static void watch_fuse(struct backend *backend, int server_pid)
{
	struct fuse *fuse = fuse_of(backend);

	(void)server_pid;
	close(fuse->fd);
	fuse->abort_fd = open_abort(fuse->path);
}

static bool abort_fuse(struct backend *backend)
{
	struct fuse *fuse = fuse_of(backend);

	return fuse->abort_fd >= 0 && write(fuse->abort_fd, "1", 1) == 1;
}

static void take_down_fuse(struct backend *backend, int device_number)
{
	struct fuse *fuse = fuse_of(backend);
	struct loop_device loop = { .number = device_number };

	snprintf(loop.node, sizeof(loop.node), "/dev/loop%d", loop.number);
	loop_detach(&loop, fuse->path);
	umount2(fuse->path, MNT_DETACH);
}

struct backend *fuse_backend(void)
{
	static struct fuse fuse = {
		.base = {
			.name = "fuse",
			.open = open_fuse,
			.attach = attach_fuse,
			.begin_end = detach_loop,
			.is_open = is_fuse_open,
			.end = end_fuse,
			.watch = watch_fuse,
			.abort = abort_fuse,
			.take_down = take_down_fuse,
		},
		.loop = { .number = -1 },
	};

	return &fuse.base;
}
