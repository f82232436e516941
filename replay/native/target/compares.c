/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "compares.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool are_valid(const struct compares *compares)
{
	int64_t size_bytes = (int64_t)compares->memory_bytes, end_bytes = 0;
	int64_t most = (size_bytes - (int64_t)sizeof(int64_t)) / (int64_t)sizeof(struct compared_range);

	if (compares->count < 0 || compares->count > most)
		return false;
	for (int64_t i = 0; i < compares->count; i++) {
		const struct compared_range *range = &compares->ranges[i];

		if (range->start_bytes < end_bytes || range->end_bytes <= range->start_bytes || range->at_bytes < 0 ||
		    range->at_bytes > size_bytes || range->end_bytes - range->start_bytes > size_bytes - range->at_bytes)
			return false;
		end_bytes = range->end_bytes;
	}
	return true;
}

static int map(struct compares *compares, int fd)
{
	struct stat st;
	void *memory;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_size < (off_t)sizeof(int64_t))
		return -EINVAL;
	/* Populated: a page fault would delay the row that sends the page. */
	memory = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	*compares = (struct compares){
		.count = *(const int64_t *)memory,
		.ranges = (const struct compared_range *)((const char *)memory + sizeof(int64_t)),
		.memory = memory,
		.memory_bytes = (size_t)st.st_size,
	};
	if (are_valid(compares))
		return 0;
	compares_unmap(compares);
	return -EINVAL;
}

int compares_map(struct compares *compares, int fd)
{
	int err = map(compares, fd);

	close(fd);
	return err;
}

void compares_unmap(struct compares *compares)
{
	if (compares->memory)
		munmap((void *)compares->memory, compares->memory_bytes);
	*compares = (struct compares){ 0 };
}

const void *compares_data(const struct compares *compares, int64_t offset_bytes, int64_t length_bytes)
{
	int64_t low = 0, high = compares->count;
	const struct compared_range *range;

	/* The first range that ends behind the offset. */
	while (low < high) {
		int64_t middle = low + (high - low) / 2;

		if (compares->ranges[middle].end_bytes > offset_bytes)
			high = middle;
		else
			low = middle + 1;
	}
	if (low == compares->count)
		return NULL;
	range = &compares->ranges[low];
	if (offset_bytes < range->start_bytes || length_bytes > range->end_bytes - offset_bytes)
		return NULL;
	return compares->memory + range->at_bytes + (offset_bytes - range->start_bytes);
}
