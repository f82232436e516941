/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The data of an emulated drive: in locked memory, or in a file by direct I/O. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define IMAGE_CHUNK_BYTES (16 << 10)
#define IMAGE_MAX_IO_BYTES (1 << 20)
/* Of one I/O: one for each chunk that it touches. */
#define IMAGE_MAX_PARTS (IMAGE_MAX_IO_BYTES / IMAGE_CHUNK_BYTES + 1)

struct image {
	int64_t size_bytes;
	int fd; /* -1: in memory */
	char *memory;
	/* A bit for each chunk of the memory. A chunk without its bit reads as zeroes, so a discard changes only bits. */
	_Atomic uint64_t *written;
	/* Until the first write is possible: reads take the zeroes of the memory itself, which costs what data costs. */
	bool untouched;
	uint32_t offset_alignment; /* that direct I/O to the file requires, in bytes */
};

/* fd: of a regular file of size_bytes, opened with O_DIRECT, which the image closes; -1: memory. Returns 0 or -errno. */
int image_init(struct image *image, int64_t size_bytes, int fd);
void image_deinit(struct image *image);

static inline bool image_is_file(const struct image *image)
{
	return image->fd >= 0;
}

/* In memory. One thread at a time writes, any other may read meanwhile. */
void image_write(struct image *image, int64_t offset_bytes, const char *data, int64_t length_bytes);
void image_zero(struct image *image, int64_t offset_bytes, int64_t length_bytes);

/* The parts of a range in memory, at most IMAGE_MAX_PARTS for IMAGE_MAX_IO_BYTES. Returns their number. */
int image_parts(const struct image *image, int64_t offset_bytes, int64_t length_bytes, struct iovec *parts);

/* In a file; data is aligned. Each returns 0 or a negative errno. */
int image_file_transfer(const struct image *image, bool writes, int64_t offset_bytes, char *data, int64_t length_bytes);
int image_file_punch(const struct image *image, int64_t offset_bytes, int64_t length_bytes);
int image_file_zero(const struct image *image, int64_t offset_bytes, int64_t length_bytes);
int image_file_flush(const struct image *image);
