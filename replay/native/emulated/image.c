/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "image.h"
#include "target/direct_alignment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char zeroes[IMAGE_CHUNK_BYTES];

/*
 * All pages are touched and locked before the first I/O: a page fault would delay a reply, and under memory pressure
 * it could wait for the write-back of pages to this very drive.
 */
static int init_memory(struct image *image)
{
	size_t chunks = (size_t)((image->size_bytes + IMAGE_CHUNK_BYTES - 1) / IMAGE_CHUNK_BYTES);
	char *memory = mmap(NULL, image->size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1,
			    0);

	if (memory == MAP_FAILED)
		return -errno;
	image->memory = memory;
	image->written = calloc((chunks + 63) / 64, sizeof(*image->written));
	if (!image->written)
		return -ENOMEM;
	return mlock(memory, image->size_bytes) ? -errno : 0;
}

int image_init(struct image *image, int64_t size_bytes, int fd)
{
	*image = (struct image){ .size_bytes = size_bytes, .fd = fd, .untouched = true, .offset_alignment = 512 };
	if (fd < 0)
		return init_memory(image);
	image->offset_alignment = direct_alignment(fd);
	return 0;
}

void image_deinit(struct image *image)
{
	if (image->memory)
		munmap(image->memory, image->size_bytes);
	free(image->written);
	if (image->fd >= 0)
		close(image->fd);
}

static bool is_written(const struct image *image, int64_t chunk)
{
	return atomic_load_explicit(&image->written[chunk / 64], memory_order_acquire) >> chunk % 64 & 1;
}

static void set_written(struct image *image, int64_t chunk, bool written)
{
	uint64_t bit = 1ull << chunk % 64;

	if (written)
		atomic_fetch_or_explicit(&image->written[chunk / 64], bit, memory_order_release);
	else
		atomic_fetch_and_explicit(&image->written[chunk / 64], ~bit, memory_order_release);
}

static int64_t part_of_chunk(int64_t offset_bytes, int64_t left_bytes)
{
	int64_t room = IMAGE_CHUNK_BYTES - offset_bytes % IMAGE_CHUNK_BYTES;

	return left_bytes < room ? left_bytes : room;
}

void image_write(struct image *image, int64_t offset_bytes, const char *data, int64_t length_bytes)
{
	while (length_bytes) {
		int64_t chunk = offset_bytes / IMAGE_CHUNK_BYTES, bytes = part_of_chunk(offset_bytes, length_bytes);
		bool first = !is_written(image, chunk);

		if (first && bytes < IMAGE_CHUNK_BYTES)
			memset(image->memory + chunk * IMAGE_CHUNK_BYTES, 0,
			       part_of_chunk(chunk * IMAGE_CHUNK_BYTES, image->size_bytes - chunk * IMAGE_CHUNK_BYTES));
		memcpy(image->memory + offset_bytes, data, bytes);
		if (first)
			set_written(image, chunk, true);
		offset_bytes += bytes;
		data += bytes;
		length_bytes -= bytes;
	}
}

void image_zero(struct image *image, int64_t offset_bytes, int64_t length_bytes)
{
	while (length_bytes) {
		int64_t chunk = offset_bytes / IMAGE_CHUNK_BYTES, bytes = part_of_chunk(offset_bytes, length_bytes);

		if (is_written(image, chunk)) {
			if (bytes == IMAGE_CHUNK_BYTES)
				set_written(image, chunk, false);
			else
				memset(image->memory + offset_bytes, 0, bytes);
		}
		offset_bytes += bytes;
		length_bytes -= bytes;
	}
}

int image_parts(const struct image *image, int64_t offset_bytes, int64_t length_bytes, struct iovec *parts)
{
	int count = 0;

	while (length_bytes) {
		int64_t bytes = part_of_chunk(offset_bytes, length_bytes);
		bool written = image->untouched || is_written(image, offset_bytes / IMAGE_CHUNK_BYTES);
		char *start = written ? image->memory + offset_bytes : (char *)zeroes;

		if (written && count && (char *)parts[count - 1].iov_base + parts[count - 1].iov_len == start)
			parts[count - 1].iov_len += bytes;
		else
			parts[count++] = (struct iovec){ start, bytes };
		offset_bytes += bytes;
		length_bytes -= bytes;
	}
	return count;
}

int image_file_transfer(const struct image *image, bool writes, int64_t offset_bytes, char *data, int64_t length_bytes)
{
	while (length_bytes) {
		ssize_t count = writes ? pwrite(image->fd, data, length_bytes, offset_bytes) :
					 pread(image->fd, data, length_bytes, offset_bytes);

		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			return count ? -errno : -EIO;
		offset_bytes += count;
		data += count;
		length_bytes -= count;
	}
	return 0;
}

int image_file_punch(const struct image *image, int64_t offset_bytes, int64_t length_bytes)
{
	return fallocate(image->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset_bytes, length_bytes) ? -errno : 0;
}

int image_file_zero(const struct image *image, int64_t offset_bytes, int64_t length_bytes)
{
	return fallocate(image->fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset_bytes, length_bytes) ? -errno : 0;
}

int image_file_flush(const struct image *image)
{
	return fdatasync(image->fd) ? -errno : 0;
}
