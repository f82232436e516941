/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "loop_device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cleanup.h"
#include "error.h"

#define ATTEMPTS 16 /* another program may take the free device first */

/*
 * As a drive has them. A loop device over FUSE would read 2560 KiB ahead, and a request above 1 MiB would reach the
 * server as two. It keeps the longest discard that was set while it had another image.
 */
#define READ_AHEAD_KB "128"
#define MAX_SECTORS_KB "1024"
#define DISCARD_MAX_BYTES "4294963200"

static int open_setting(const struct loop_device *loop, const char *name, int flags)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/block/loop%d/%s", loop->number, name);
	return open(path, flags | O_CLOEXEC);
}

static bool read_setting(const struct loop_device *loop, const char *name, char *text, size_t size)
{
	int fd CLEANUP_CLOSE = open_setting(loop, name, O_RDONLY);
	ssize_t bytes = fd < 0 ? -1 : read(fd, text, size - 1);

	text[bytes < 0 ? 0 : bytes] = 0;
	text[strcspn(text, "\n")] = 0;
	return bytes > 0;
}

/* A setting that the kernel refuses stays as it is. */
static void write_setting(const struct loop_device *loop, const char *name, const char *text)
{
	int fd CLEANUP_CLOSE = open_setting(loop, name, O_WRONLY);

	if (fd >= 0 && write(fd, text, strlen(text)) < 0)
		return;
}

/* Returns 0 or a negative errno; -EBUSY if another program took it. */
static int configure(struct loop_device *loop, int file, uint32_t block_bytes, const char *path)
{
	struct loop_config config = {
		.fd = (uint32_t)file,
		.block_size = block_bytes,
		.info = { .lo_flags = LO_FLAGS_DIRECT_IO },
	};
	int fd CLEANUP_CLOSE = -1;

	snprintf(loop->node, sizeof(loop->node), "/dev/loop%d", loop->number);
	snprintf((char *)config.info.lo_file_name, LO_NAME_SIZE, "%s", path);
	fd = open(loop->node, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return ioctl(fd, LOOP_CONFIGURE, &config) ? -errno : 0;
}

static int attach_free(struct loop_device *loop, int control, int file, uint32_t block_bytes, const char *path)
{
	int err = -EBUSY;

	for (unsigned i = 0; i < ATTEMPTS && err == -EBUSY; i++) {
		loop->number = ioctl(control, LOOP_CTL_GET_FREE);
		if (loop->number < 0)
			return -errno;
		err = configure(loop, file, block_bytes, path);
	}
	return err;
}

int loop_attach(struct loop_device *loop, const char *path, uint32_t block_bytes)
{
	int control CLEANUP_CLOSE = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int file CLEANUP_CLOSE = -1;
	int err;

	loop->number = -1;
	if (control < 0)
		return report_error("load its module: modprobe loop", "cannot open /dev/loop-control: %s", strerror(errno));
	file = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (file < 0)
		return report_error(NULL, "cannot open the mounted drive %s: %s", path, strerror(errno));
	err = attach_free(loop, control, file, block_bytes, path);
	if (err) {
		loop->number = -1;
		return report_error("list those in use: losetup -a", "no free loop device: %s", strerror(-err));
	}
	read_setting(loop, "queue/read_ahead_kb", loop->read_ahead_kb, sizeof(loop->read_ahead_kb));
	write_setting(loop, "queue/read_ahead_kb", READ_AHEAD_KB);
	write_setting(loop, "queue/max_sectors_kb", MAX_SECTORS_KB);
	write_setting(loop, "queue/discard_max_bytes", DISCARD_MAX_BYTES);
	write_setting(loop, "queue/rotational", "0");
	return 0;
}

static bool is_attached(const struct loop_device *loop, const char *path)
{
	char backing[300];

	return loop->number >= 0 && read_setting(loop, "loop/backing_file", backing, sizeof(backing)) &&
	       !strcmp(backing, path);
}

void loop_detach(struct loop_device *loop, const char *path)
{
	int fd CLEANUP_CLOSE = -1;

	if (!is_attached(loop, path))
		return;
	if (loop->read_ahead_kb[0])
		write_setting(loop, "queue/read_ahead_kb", loop->read_ahead_kb);
	fd = open(loop->node, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && ioctl(fd, LOOP_CLR_FD, 0))
		return;
}
