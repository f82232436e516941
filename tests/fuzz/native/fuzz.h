/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the fuzz targets share. A target is a function of bytes that aborts where an invariant does not hold. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REQUIRE(condition)                                                                        \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			fprintf(stderr, "%s:%d: violated: %s\n", __FILE__, __LINE__, #condition);  \
			abort();                                                                  \
		}                                                                                 \
	} while (0)

/* The interface of libFuzzer, which mutations.c also has. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The rest of an input, from which numbers are taken; zeros follow its end. */
struct input_bytes {
	const uint8_t *data;
	size_t size;
};

static inline void take_bytes(struct input_bytes *input, void *value, size_t nbytes)
{
	size_t part = nbytes < input->size ? nbytes : input->size;

	memset(value, 0, nbytes);
	if (part)
		memcpy(value, input->data, part);
	input->data += part;
	input->size -= part;
}

static inline uint8_t take_byte(struct input_bytes *input)
{
	uint8_t value;

	take_bytes(input, &value, sizeof(value));
	return value;
}

static inline int64_t take_number(struct input_bytes *input)
{
	int64_t value;

	take_bytes(input, &value, sizeof(value));
	return value;
}

/* A file in memory with this content, at its beginning. */
static inline int memory_file(const void *data, size_t size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	REQUIRE(fd >= 0 && (!size || write(fd, data, size) == (ssize_t)size) && !lseek(fd, 0, SEEK_SET));
	return fd;
}
