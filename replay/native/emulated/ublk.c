/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A ublk device with one queue, whose thread reads requests and replies. It copies data by reads and writes of the
 * queue's file (user copy, Linux 6.5): between the requests' pages and the image, at the time of the reply.
 */
#include "backend.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "error.h"

#if __has_include(<linux/ublk_cmd.h>)
#include <linux/ublk_cmd.h>

#include "capabilities.h"
#include "cleanup.h"
#include "run/clock.h"
#include "run/host.h"

/* Of Linux 6.5; the headers may be older. */
#define FEATURE_ENCODED (1ull << 6)
#define FEATURE_USER_COPY (1ull << 7)
#define TAG_SHIFT 25
#define CONTROL(command) _IOWR('u', (command), struct ublksrv_ctrl_cmd)
#define QUEUE(command) _IOWR('u', (command), struct ublksrv_io_cmd)
#define GET_FEATURES _IOR('u', 0x13, struct ublksrv_ctrl_cmd)
#define DELETE_LATER _IOR('u', 0x14, struct ublksrv_ctrl_cmd)

#define CONTROL_NODE "/dev/ublk-control"
#define NEW_DEVICE UINT32_MAX
#define NO_QUEUE UINT16_MAX
#define SECTOR_SHIFT 9
#define WAKE_TAG UINT64_MAX

struct control {
	int fd;
	struct io_uring ring;
	uint32_t device;
};

struct ublk {
	struct backend base;
	struct control control;
	struct server *server;
	struct watchdog_shared *shared;
	unsigned depth;

	int queue_fd;
	const struct ublksrv_io_desc *requests; /* by tag; the kernel writes them */
	struct io_uring ring;
	int wake_fd; /* eventfd */
	uint64_t wakes;
	unsigned fetching; /* tags that the kernel has a command for, or this process a request of */
	pthread_t thread;
	bool has_thread;

	char record[280];  /* a file with the node, the server and the key of the device, while it exists */
	uint64_t key;

	int server_pid; /* in the watchdog */
};

static struct ublk *ublk_of(struct backend *backend)
{
	return (struct ublk *)backend;
}

/* ---- control ---- */

static int open_control(struct control *control)
{
	int err;

	control->fd = open(CONTROL_NODE, O_RDWR | O_CLOEXEC);
	if (control->fd < 0)
		return -errno;
	err = io_uring_queue_init(4, &control->ring, IORING_SETUP_SQE128);
	if (err)
		close(control->fd);
	return err;
}

/* Returns 0 or a negative errno. Waits until the kernel has carried out the command. */
static int run_control(struct control *control, uint32_t command, uint64_t data, void *buffer, uint16_t buffer_bytes)
{
	struct ublksrv_ctrl_cmd words = {
		.dev_id = control->device,
		.queue_id = NO_QUEUE,
		.addr = (uintptr_t)buffer,
		.len = buffer_bytes,
		.data = { data },
	};
	struct io_uring_sqe *sqe = io_uring_get_sqe(&control->ring);
	struct io_uring_cqe *cqe;
	int err;

	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, control->fd, NULL, 0, 0);
	sqe->cmd_op = command;
	memcpy(sqe->cmd, &words, sizeof(words));
	io_uring_submit(&control->ring);
	do
		err = io_uring_wait_cqe(&control->ring, &cqe);
	while (err == -EINTR);
	if (err)
		return err;
	err = cqe->res;
	io_uring_cqe_seen(&control->ring, cqe);
	return err;
}

/* Linux before 6.5 does not know the command either. */
static bool has_user_copy(struct control *control)
{
	uint64_t features = 0;

	return !run_control(control, GET_FEATURES, 0, &features, sizeof(features)) && features & FEATURE_USER_COPY;
}

/* key: a number of this device alone, which the kernel keeps for its server. */
static int add_device(struct control *control, unsigned depth, uint64_t key)
{
	struct ublksrv_ctrl_dev_info info = {
		.nr_hw_queues = 1,
		.queue_depth = (uint16_t)depth,
		.max_io_buf_bytes = IMAGE_MAX_IO_BYTES,
		.dev_id = NEW_DEVICE,
		.flags = FEATURE_USER_COPY | FEATURE_ENCODED,
		.ublksrv_flags = key,
	};
	int err = run_control(control, CONTROL(UBLK_CMD_ADD_DEV), 0, &info, sizeof(info));

	if (!err)
		control->device = info.dev_id;
	return err;
}

static int set_parameters(struct control *control, const struct image *image)
{
	uint8_t block_shift = (uint8_t)__builtin_ctz(image->offset_alignment);
	uint32_t most_sectors = UINT32_MAX >> SECTOR_SHIFT;
	struct ublk_params parameters = {
		.len = sizeof(parameters),
		.types = UBLK_PARAM_TYPE_BASIC | UBLK_PARAM_TYPE_DISCARD,
		/* FUA is a flush, as on a drive without FUA. */
		.basic = { .attrs = UBLK_ATTR_VOLATILE_CACHE, .logical_bs_shift = block_shift,
			   .physical_bs_shift = block_shift, .io_min_shift = block_shift, .io_opt_shift = block_shift,
			   .max_sectors = IMAGE_MAX_IO_BYTES >> SECTOR_SHIFT,
			   .dev_sectors = (uint64_t)image->size_bytes >> SECTOR_SHIFT },
		.discard = { .discard_granularity = image->offset_alignment, .max_discard_sectors = most_sectors,
			     .max_write_zeroes_sectors = most_sectors, .max_discard_segments = 1 },
	};

	return run_control(control, CONTROL(UBLK_CMD_SET_PARAMS), 0, &parameters, sizeof(parameters));
}

/* Another server may have a device of this number by now. */
static bool has_key(struct control *control, uint64_t key)
{
	struct ublksrv_ctrl_dev_info info = { 0 };

	return !run_control(control, CONTROL(UBLK_CMD_GET_DEV_INFO), 0, &info, sizeof(info)) && info.ublksrv_flags == key;
}

static void stop_device(struct control *control)
{
	run_control(control, CONTROL(UBLK_CMD_STOP_DEV), 0, NULL, 0);
}

static void delete_device(struct control *control)
{
	/* Linux before 6.9 waits until no program has the device open. */
	if (run_control(control, DELETE_LATER, 0, NULL, 0))
		run_control(control, CONTROL(UBLK_CMD_DEL_DEV), 0, NULL, 0);
}

/* ---- the queue ---- */

static void queue_command(struct ublk *ublk, uint32_t command, uint16_t tag, int result)
{
	struct ublksrv_io_cmd words = { .tag = tag, .result = result };
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ublk->ring);

	if (!sqe) { /* full of commands that wait for the next submission */
		io_uring_submit(&ublk->ring);
		sqe = io_uring_get_sqe(&ublk->ring);
	}
	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, ublk->queue_fd, NULL, 0, 0);
	sqe->cmd_op = command;
	memcpy(sqe->cmd, &words, sizeof(words));
	io_uring_sqe_set_data64(sqe, tag);
}

static int64_t copy_position(uint16_t tag)
{
	return UBLKSRV_IO_BUF_OFFSET + ((int64_t)tag << TAG_SHIFT);
}

static int copy_read(const struct ublk *ublk, const struct emulated_io *io)
{
	struct iovec parts[IMAGE_MAX_PARTS] = { { io->buffer, (size_t)io->length_bytes } };
	int count = io->buffer ? 1 : image_parts(ublk->server->image, io->offset_bytes, io->length_bytes, parts);
	ssize_t bytes = pwritev(ublk->queue_fd, parts, count, copy_position((uint16_t)io->unique));

	return bytes == io->length_bytes ? 0 : bytes < 0 ? -errno : -EIO;
}

/* In the thread of the queue. The command is submitted with the next wait. */
static void send_io(void *backend, const struct emulated_io *io)
{
	struct ublk *ublk = backend;
	int result = io->error;

	if (!result && io->op == OP_READ)
		result = copy_read(ublk, io);
	if (!result && io->op <= OP_WRITE)
		result = (int)io->length_bytes;
	queue_command(ublk, QUEUE(UBLK_IO_COMMIT_AND_FETCH_REQ), (uint16_t)io->unique, result);
}

/* Returns 0, or a negative errno to answer with. */
static int parse_io(struct ublk *ublk, struct emulated_io *io, uint16_t tag)
{
	const struct ublksrv_io_desc *request = &ublk->requests[tag];
	ssize_t bytes;

	io->unique = tag;
	io->offset_bytes = (int64_t)(request->start_sector << SECTOR_SHIFT);
	io->length_bytes = (int64_t)request->nr_sectors << SECTOR_SHIFT;
	switch (ublksrv_get_op(request)) {
	case UBLK_IO_OP_READ:
		io->op = OP_READ;
		break;
	case UBLK_IO_OP_WRITE:
		io->op = OP_WRITE;
		break;
	case UBLK_IO_OP_DISCARD:
		io->op = OP_DISCARD;
		break;
	case UBLK_IO_OP_WRITE_ZEROES:
		io->op = OP_WRITE_ZEROES;
		break;
	case UBLK_IO_OP_FLUSH:
		io->op = OP_FLUSH;
		io->offset_bytes = io->length_bytes = 0;
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (!server_accepts(ublk->server, io))
		return -EINVAL;
	if (io->op != OP_WRITE)
		return 0;
	io->data = server_buffer(ublk->server, io, 0);
	bytes = pread(ublk->queue_fd, io->data, (size_t)io->length_bytes, copy_position(tag));
	return bytes == io->length_bytes ? 0 : bytes < 0 ? -errno : -EIO;
}

static void take_request(struct ublk *ublk, uint16_t tag)
{
	int64_t arrived_ns = monotonic_ns();
	struct emulated_io *io = delay_take(ublk->server->delay); /* never waits: there are as many slots as tags */
	int error = parse_io(ublk, io, tag);

	io->arrived_ns = arrived_ns;
	if (error) {
		delay_give_back(ublk->server->delay, io);
		queue_command(ublk, QUEUE(UBLK_IO_COMMIT_AND_FETCH_REQ), tag, error);
		return;
	}
	server_take(ublk->server, io);
}

static void await_wake(struct ublk *ublk)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ublk->ring);

	io_uring_prep_read(sqe, ublk->wake_fd, &ublk->wakes, sizeof(ublk->wakes), 0);
	io_uring_sqe_set_data64(sqe, WAKE_TAG);
}

static void wake(void *backend)
{
	const struct ublk *ublk = backend;
	const uint64_t one = 1;

	/* Fails only if wakes that the thread has not read yet fill the counter. */
	if (!pthread_equal(pthread_self(), ublk->thread) && write(ublk->wake_fd, &one, sizeof(one)) < 0)
		return;
}

/* Submits, and sleeps until a request arrives or shortly before a time of CLOCK_MONOTONIC. */
static void wait_for_requests(struct ublk *ublk, int64_t until_ns)
{
	int64_t sleep_ns = until_ns == INT64_MAX ? INT64_MAX : until_ns - DELAY_SPIN_NS - monotonic_ns();
	struct __kernel_timespec timeout = { sleep_ns / NS_PER_S, sleep_ns % NS_PER_S };
	struct io_uring_cqe *cqe;

	if (sleep_ns > 0) {
		io_uring_submit_and_wait_timeout(&ublk->ring, &cqe, 1, until_ns == INT64_MAX ? NULL : &timeout, NULL);
		return;
	}
	if (io_uring_sq_ready(&ublk->ring))
		io_uring_submit(&ublk->ring);
	while (monotonic_ns() < until_ns && !io_uring_cq_ready(&ublk->ring))
		spin_pause();
}

static void take_completions(struct ublk *ublk)
{
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(&ublk->ring, &cqe)) {
		uint64_t tag = io_uring_cqe_get_data64(cqe);
		int result = cqe->res;

		io_uring_cqe_seen(&ublk->ring, cqe);
		if (tag == WAKE_TAG)
			await_wake(ublk);
		else if (result == UBLK_IO_RES_OK)
			take_request(ublk, (uint16_t)tag);
		else
			ublk->fetching--; /* the device was stopped */
	}
}

static void *serve_queue(void *argument)
{
	struct ublk *ublk = argument;

	capabilities_limit(0);
	host_reduce_timer_slack();
	await_wake(ublk);
	for (ublk->fetching = 0; ublk->fetching < ublk->depth; ublk->fetching++)
		queue_command(ublk, QUEUE(UBLK_IO_FETCH_REQ), (uint16_t)ublk->fetching, 0);
	while (ublk->fetching) {
		wait_for_requests(ublk, delay_send_due(ublk->server->delay));
		take_completions(ublk);
	}
	atomic_store(&ublk->base.ended, true);
	return NULL;
}

/* ---- begin and end ---- */

static int open_ublk(struct backend *backend, const char *path, uint64_t inode_number)
{
	struct ublk *ublk = ublk_of(backend);
	int err = open_control(&ublk->control);

	snprintf(ublk->record, sizeof(ublk->record), "%.*s/ublk", (int)(strrchr(path, '/') - path), path);
	ublk->key = inode_number;
	if (err == -ENOENT)
		return report_error("run: modprobe ublk_drv; or use --backend fuse",
				    "no " CONTROL_NODE ": this kernel has no ublk, or its module is not loaded");
	if (err)
		return report_error(NULL, "cannot open " CONTROL_NODE ": %s", strerror(-err));
	if (!has_user_copy(&ublk->control))
		return report_error("use --backend fuse", "the ublk of this kernel has no user copy, which is new in Linux 6.5");
	return 0;
}

bool ublk_is_supported(void)
{
	struct control control = { .device = NEW_DEVICE };
	bool supported;

	if (open_control(&control))
		return false;
	supported = has_user_copy(&control);
	io_uring_queue_exit(&control.ring);
	close(control.fd);
	return supported;
}

static int open_queue(struct ublk *ublk)
{
	char node[32];
	size_t bytes = ublk->depth * sizeof(*ublk->requests);
	void *requests;

	snprintf(node, sizeof(node), "/dev/ublkc%u", ublk->control.device);
	ublk->queue_fd = open(node, O_RDWR | O_CLOEXEC);
	if (ublk->queue_fd < 0)
		return -errno;
	requests = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, ublk->queue_fd, UBLKSRV_CMD_BUF_OFFSET);
	if (requests == MAP_FAILED)
		return -errno;
	ublk->requests = requests;
	ublk->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (ublk->wake_fd < 0)
		return -errno;
	return io_uring_queue_init(2 * ublk->depth, &ublk->ring, 0);
}

static int start_queue(struct ublk *ublk)
{
	int err;

	ublk->server->delay->reply = send_io;
	ublk->server->delay->wake = wake;
	ublk->server->delay->backend = ublk;
	err = -pthread_create(&ublk->thread, NULL, serve_queue, ublk);
	ublk->has_thread = !err;
	return err;
}

/* For the command, which names the drive by it, and for the next one, if this one and its watchdog are killed. */
static int write_record(const struct ublk *ublk)
{
	FILE *file = fopen(ublk->record, "we");
	int err;

	if (!file)
		return -errno;
	fprintf(file, "/dev/ublkb%u %d %" PRIu64 "\n", ublk->control.device, getpid(), ublk->key);
	err = fclose(file) ? -errno : 0;
	return err;
}

static int make_device(struct ublk *ublk)
{
	int err = add_device(&ublk->control, ublk->depth, ublk->key);

	if (err)
		return err;
	atomic_store(&ublk->shared->device_number, (int)ublk->control.device);
	err = write_record(ublk);
	if (err)
		return err;
	err = set_parameters(&ublk->control, ublk->server->image);
	if (!err)
		err = open_queue(ublk);
	if (!err)
		err = start_queue(ublk);
	if (err)
		return err;
	/* The kernel looks for partitions now: reads that no program made. */
	delay_set_constant(ublk->server->delay, 0);
	err = run_control(&ublk->control, CONTROL(UBLK_CMD_START_DEV), (uint64_t)getpid(), NULL, 0);
	delay_set_constant(ublk->server->delay, DELAY_NONE);
	return err;
}

/* As the other back end: a scheduler would add to the times of this machine, not of the drive. */
static void without_scheduler(const struct ublk *ublk)
{
	char path[64];
	int fd CLEANUP_CLOSE = -1;

	snprintf(path, sizeof(path), "/sys/block/ublkb%u/queue/scheduler", ublk->control.device);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "none", 4) < 0)
		return;
}

static int attach_ublk(struct backend *backend, struct server *server, struct watchdog_shared *shared)
{
	struct ublk *ublk = ublk_of(backend);
	int err;

	ublk->server = server;
	ublk->shared = shared;
	ublk->depth = server->delay->slots;
	err = make_device(ublk);
	if (err)
		return report_error(NULL, "cannot make a ublk device: %s", strerror(-err));
	snprintf(backend->node, sizeof(backend->node), "/dev/ublkb%u", ublk->control.device);
	without_scheduler(ublk);
	return 0;
}

/* Whether a process has the device open by one of its descriptors. */
static bool has_descriptor(int process_fd, dev_t device)
{
	int fd = openat(process_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *descriptors = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	bool found = false;

	if (!descriptors)
		return false; /* it has ended */
	while (!found && (entry = readdir(descriptors))) {
		struct stat status;

		found = !fstatat(dirfd(descriptors), entry->d_name, &status, 0) && S_ISBLK(status.st_mode) &&
			status.st_rdev == device;
	}
	closedir(descriptors);
	return found;
}

static bool any_process_has(dev_t device)
{
	DIR *processes = opendir("/proc");
	const struct dirent *entry;
	bool found = false;

	if (!processes)
		return false;
	while (!found && (entry = readdir(processes))) {
		int fd CLEANUP_CLOSE = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ?
			openat(dirfd(processes), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

		found = fd >= 0 && has_descriptor(fd, device);
	}
	closedir(processes);
	return found;
}

/* A mount or another driver holds it exclusively. */
static bool is_ublk_open(struct backend *backend)
{
	int fd CLEANUP_CLOSE = open(backend->node, O_RDONLY | O_EXCL | O_CLOEXEC);
	struct stat status;

	if (fd < 0)
		return errno == EBUSY;
	if (fstat(fd, &status))
		return false;
	close(fd);
	fd = -1;
	return any_process_has(status.st_rdev);
}

static void end_ublk(struct backend *backend)
{
	struct ublk *ublk = ublk_of(backend);

	if (ublk->control.device == NEW_DEVICE)
		return;
	stop_device(&ublk->control);
	if (ublk->has_thread)
		pthread_join(ublk->thread, NULL);
	server_stop(ublk->server);
	/* The kernel waits for the end of this file before it removes the device. */
	if (ublk->queue_fd >= 0)
		close(ublk->queue_fd);
	delete_device(&ublk->control);
	unlink(ublk->record);
	/* From now on the number may be that of another drive. */
	atomic_store(&ublk->shared->device_number, -1);
}

/* ---- in the watchdog ---- */

static void watch_ublk(struct backend *backend, int server_pid)
{
	struct ublk *ublk = ublk_of(backend);

	ublk->server_pid = server_pid;
	/* A ring belongs to one process. Made in advance, because a process under memory pressure may not be able to. */
	close(ublk->control.fd);
	close(ublk->control.ring.ring_fd);
	if (open_control(&ublk->control))
		ublk->control.fd = -1;
}

/* The kernel fails the requests of a server that ends. */
static bool abort_ublk(struct backend *backend)
{
	return !kill(ublk_of(backend)->server_pid, SIGKILL);
}

static void take_down_ublk(struct backend *backend, int device_number)
{
	struct ublk *ublk = ublk_of(backend);

	if (device_number < 0 || ublk->control.fd < 0)
		return;
	ublk->control.device = (uint32_t)device_number;
	if (!has_key(&ublk->control, ublk->key))
		return;
	/* Refused if the device was never started. */
	stop_device(&ublk->control);
	delete_device(&ublk->control);
}

void ublk_remove(unsigned device_number, uint64_t key)
{
	struct ublk ublk = { .key = key };

	if (open_control(&ublk.control))
		return;
	take_down_ublk(&ublk.base, (int)device_number);
}

struct backend *ublk_backend(void)
{
	static struct ublk ublk = {
		.base = {
			.name = "ublk",
			.open = open_ublk,
			.attach = attach_ublk,
			.is_open = is_ublk_open,
			.end = end_ublk,
			.watch = watch_ublk,
			.abort = abort_ublk,
			.take_down = take_down_ublk,
		},
		.control = { .device = NEW_DEVICE },
		.queue_fd = -1,
	};

	return &ublk.base;
}

#else

bool ublk_is_supported(void)
{
	return false;
}

void ublk_remove(unsigned device_number, uint64_t key)
{
	(void)device_number;
	(void)key;
}

static int open_unknown(struct backend *backend, const char *path, uint64_t inode_number)
{
	(void)backend;
	(void)path;
	(void)inode_number;
	return report_error("use --backend fuse", "built without ublk: the kernel headers were older than Linux 6.0");
}

struct backend *ublk_backend(void)
{
	static struct backend backend = { .name = "ublk", .open = open_unknown };

	return &backend;
}

#endif
