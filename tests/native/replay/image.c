/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The image of an emulated drive in memory, against a plain array. */
#include "emulated/image.h"

#include <string.h>

#include "check.h"

#define CHUNKS 5
#define SIZE (CHUNKS * IMAGE_CHUNK_BYTES + 512) /* the last chunk is a part */

static struct image image;
static char plain[SIZE];

static void check_range(int64_t offset, int64_t length)
{
	struct iovec parts[IMAGE_MAX_PARTS];
	int count = image_parts(&image, offset, length, parts);
	int64_t at = offset;

	CHECK(count <= CHUNKS + 1);
	for (int i = 0; i < count; i++) {
		CHECK(!memcmp(parts[i].iov_base, plain + at, parts[i].iov_len));
		at += (int64_t)parts[i].iov_len;
	}
	CHECK_EQUAL(at, offset + length);
}

static void random_changes_read_back(void)
{
	static char data[SIZE];
	uint64_t random = 7;

	for (int i = 0; i < 3000; i++) {
		int64_t offset, length;

		random = random * 6364136223846793005ull + 1442695040888963407ull;
		offset = (int64_t)(random >> 40) % (SIZE / 512) * 512;
		length = ((int64_t)(random >> 20 & 0xfffff) % ((SIZE - offset) / 512) + 1) * 512;
		if (random >> 63) {
			memset(data, (int)(i % 255 + 1), length);
			image_write(&image, offset, data, length);
			memcpy(plain + offset, data, length);
		} else {
			image_zero(&image, offset, length);
			memset(plain + offset, 0, length);
		}
		check_range(0, SIZE);
		check_range(offset, length);
	}
}

/* A discard changes only bits, and the old data of a chunk must not show through a later write to a part of it. */
static void a_discarded_chunk_is_zero_again(void)
{
	char data[512];

	memset(data, 'a', sizeof(data));
	image_write(&image, 0, data, sizeof(data));
	image_zero(&image, 0, IMAGE_CHUNK_BYTES);
	image_write(&image, 1024, data, sizeof(data));
	memset(plain, 0, IMAGE_CHUNK_BYTES);
	memcpy(plain + 1024, data, sizeof(data));
	check_range(0, IMAGE_CHUNK_BYTES);
}

/* Two neighbors in one part: a large read takes few. */
static void written_neighbors_are_one_part(void)
{
	static char data[2 * IMAGE_CHUNK_BYTES];
	struct iovec parts[IMAGE_MAX_PARTS];

	memset(data, 'b', sizeof(data));
	image_write(&image, 0, data, sizeof(data));
	CHECK_EQUAL(image_parts(&image, 0, sizeof(data), parts), 1);
}

int main(void)
{
	CHECK_EQUAL(image_init(&image, SIZE, -1), 0);
	image.untouched = false;
	check_range(0, SIZE);
	random_changes_read_back();
	a_discarded_chunk_is_zero_again();
	written_neighbors_are_one_part();
	image_deinit(&image);
	return 0;
}
