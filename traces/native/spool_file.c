/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "spool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESERVE_STEP_BYTES (64 << 10)

void spool_file_init(struct spool_file *file, int fd, int reserve_fd, unsigned int reserve_divisor)
{
	off_t position = lseek(fd, 0, SEEK_CUR);

	*file = (struct spool_file){
		.fd = fd,
		.reserve_fd = reserve_fd,
		.reserve_divisor = reserve_divisor,
		.whole_bytes = position < 0 ? 0 : position,
	};
}

/* A share of the file's blocks on disk, which may be fewer than its length: its head may have been punched out. */
static int keep_reserve(struct spool_file *file)
{
	struct stat held;
	uint64_t steps;

	if (file->reserve_fd < 0 || fstat(file->fd, &held))
		return 0;
	steps = (uint64_t)held.st_blocks * 512 / file->reserve_divisor / RESERVE_STEP_BYTES;
	if (steps * RESERVE_STEP_BYTES < file->reserved_bytes)
		return 0;
	steps += 1 + steps / 8;
	if (fallocate(file->reserve_fd, 0, 0, (off_t)steps * RESERVE_STEP_BYTES)) {
		if (errno == ENOSPC || errno == EDQUOT)
			return -errno;
		file->reserve_fd = -1; /* this file system cannot reserve space */
		return 0;
	}
	file->reserved_bytes = steps * RESERVE_STEP_BYTES;
	return 0;
}

/* Part of a block would hide everything written behind it. */
static int complete(struct spool_file *file, int err, size_t payload_bytes)
{
	if (!err)
		file->whole_bytes += (off_t)(sizeof(struct block_header) + payload_bytes);
	else if (!ftruncate(file->fd, file->whole_bytes))
		lseek(file->fd, file->whole_bytes, SEEK_SET);
	return err;
}

int spool_file_write_layout(struct spool_file *file, const struct block_layout *layout)
{
	int err = block_write_layout(file->fd, layout, true);
	off_t position = lseek(file->fd, 0, SEEK_CUR);

	if (!err && position > 0)
		file->whole_bytes = position;
	return err;
}

int spool_file_write_rows(struct spool_file *file, const struct block_layout *layout, uint32_t rows,
			  const void *const *columns)
{
	int err = keep_reserve(file);

	if (err)
		return err;
	return complete(file, block_write_rows(file->fd, layout, rows, columns, true), block_rows_bytes(layout, rows));
}

int spool_file_write_json(struct spool_file *file, enum block_kind kind, const char *json)
{
	return complete(file, block_write_json(file->fd, kind, json, true), strlen(json));
}

void spool_file_release_reserve(struct spool_file *file)
{
	if (file->reserved_bytes > RESERVE_STEP_BYTES &&
	    !ftruncate(file->reserve_fd, (off_t)(file->reserved_bytes - RESERVE_STEP_BYTES)))
		file->reserved_bytes -= RESERVE_STEP_BYTES;
}
