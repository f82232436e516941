/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "blocks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zlib.h>

static const uint8_t zeros[8];

static int write_vectors(int fd, struct iovec *vec, int count)
{
	while (count > 0) {
		ssize_t n = writev(fd, vec, count);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		while (count > 0 && (size_t)n >= vec->iov_len) {
			n -= (ssize_t)vec->iov_len;
			vec++;
			count--;
		}
		if (count > 0) {
			vec->iov_base = (char *)vec->iov_base + n;
			vec->iov_len -= n;
		}
	}
	return 0;
}

static struct block_header make_header(enum block_kind kind, uint32_t rows, uint64_t payload_bytes)
{
	return (struct block_header){
		.magic = BLOCK_MAGIC,
		.kind = (uint16_t)kind,
		.rows = rows,
		.payload_bytes = payload_bytes,
	};
}

/* The first vector is the header. */
static void set_checksum(const struct iovec *vec, int count)
{
	struct block_header *header = vec[0].iov_base;
	uLong crc = crc32_z(0, NULL, 0);

	for (int i = 0; i < count; i++)
		crc = crc32_z(crc, vec[i].iov_base, vec[i].iov_len);
	header->checksum = crc ? (uint32_t)crc : 1;
}

size_t block_rows_bytes(const struct block_layout *layout, uint32_t rows)
{
	size_t total = 0;

	for (size_t i = 0; i < layout->column_count; i++)
		total += block_padded((size_t)rows * layout->columns[i].width_bytes);
	return total;
}

/* The layout as JSON, spaced as Python's json.dumps spaces it, so that the two can be compared as text. */
static int layout_json(const struct block_layout *layout, char *buffer, size_t size)
{
	size_t used = (size_t)snprintf(buffer, size, "{\"stream\": \"%s\", \"version\": 2, \"columns\": [", layout->stream);

	for (size_t i = 0; i < layout->column_count && used < size; i++)
		used += (size_t)snprintf(buffer + used, size - used, "%s[\"%s\", \"i%u\"]", i ? ", " : "",
				 layout->columns[i].name, layout->columns[i].width_bytes);
	if (used < size)
		used += (size_t)snprintf(buffer + used, size - used, "]}");
	return used < size ? (int)used : -ENOBUFS;
}

int block_write_json(int fd, enum block_kind kind, const char *json, bool checksum)
{
	size_t length = strlen(json);
	struct block_header header = make_header(kind, 0, length);
	struct iovec vec[] = {
		{ &header, sizeof(header) },
		{ (void *)json, length },
	};

	if (checksum)
		set_checksum(vec, 2);
	return write_vectors(fd, vec, 2);
}

int block_write_layout(int fd, const struct block_layout *layout, bool checksum)
{
	char json[2048];
	int length = layout_json(layout, json, sizeof(json));

	return length < 0 ? length : block_write_json(fd, BLOCK_LAYOUT, json, checksum);
}

int block_write_rows(int fd, const struct block_layout *layout, uint32_t rows, const void *const *columns,
		     bool checksum)
{
	struct iovec vec[1 + 2 * BLOCK_MAX_COLUMNS];
	struct block_header header = make_header(BLOCK_ROWS, rows, block_rows_bytes(layout, rows));
	int count = 0;

	if (layout->column_count > BLOCK_MAX_COLUMNS)
		return -EINVAL;
	vec[count++] = (struct iovec){ &header, sizeof(header) };
	for (size_t i = 0; i < layout->column_count; i++) {
		size_t nbytes = (size_t)rows * layout->columns[i].width_bytes;

		vec[count++] = (struct iovec){ (void *)columns[i], nbytes };
		vec[count++] = (struct iovec){ (void *)zeros, block_padded(nbytes) - nbytes };
	}
	if (checksum)
		set_checksum(vec, count);
	return write_vectors(fd, vec, count);
}

int block_read_exactly(int fd, void *buffer, size_t nbytes)
{
	char *at = buffer;

	while (nbytes > 0) {
		ssize_t n = read(fd, at, nbytes);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (n == 0)
			return -EPIPE;
		at += n;
		nbytes -= (size_t)n;
	}
	return 0;
}

int block_read_header(int fd, struct block_header *header)
{
	int err = block_read_exactly(fd, header, sizeof(*header));

	if (err)
		return err;
	if (header->magic != BLOCK_MAGIC || header->payload_bytes > BLOCK_MAX_PAYLOAD)
		return -EPROTO;
	return 0;
}

int block_read_layout(int fd, const struct block_layout *const *layouts, size_t count)
{
	char ours[2048], theirs[2048];
	struct block_header header;
	int err = block_read_header(fd, &header);

	if (err)
		return err;
	if (header.kind != BLOCK_LAYOUT || header.payload_bytes > sizeof(theirs))
		return -EPROTO;
	err = block_read_exactly(fd, theirs, header.payload_bytes);
	if (err)
		return err;
	for (size_t i = 0; i < count; i++) {
		int length = layout_json(layouts[i], ours, sizeof(ours));

		if (length >= 0 && header.payload_bytes == (uint64_t)length && !memcmp(ours, theirs, (size_t)length))
			return (int)i;
	}
	return -EPROTO;
}

int block_split_rows(const struct block_layout *layout, uint32_t rows, const void *payload,
		     uint64_t payload_bytes, const void **columns)
{
	size_t offset = 0;

	if (block_rows_bytes(layout, rows) != payload_bytes)
		return -EPROTO;
	for (size_t i = 0; i < layout->column_count; i++) {
		/* A block without rows may have no payload. */
		columns[i] = payload ? (const char *)payload + offset : NULL;
		offset += block_padded((size_t)rows * layout->columns[i].width_bytes);
	}
	return 0;
}
