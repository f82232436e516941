/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Each compare gets the data of its own blocks, as one command or as several, and only data that the caller read. */
#include <errno.h>
#include <fcntl.h>
#include <linux/nvme_ioctl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "issue/uring.h"

#define COMPARE 0x05
#define PARTS 3u
/* Statuses of NVMe; the bit says not to retry. */
#define COMPARE_FAILURE 0x4285
#define UNRECOVERED_READ 0x281
#define SKIPPED 77

struct memory {
	int64_t count;
	struct compared_range ranges[2];
	char data[12288 + 4096];
};

static const struct memory valid = {
	.count = 2,
	.ranges = { { 8192, 20480, offsetof(struct memory, data) },
		    { 40960, 45056, offsetof(struct memory, data) + 12288 } },
};

static int map(struct compares *compares, const struct memory *memory, size_t size)
{
	int fd = memfd_create("compares", MFD_CLOEXEC), err;

	CHECK_EQUAL(write(fd, memory, size), (ssize_t)size);
	*compares = (struct compares){ 0 };
	err = compares_map(compares, fd);
	CHECK(fcntl(fd, F_GETFD) < 0);
	CHECK_EQUAL(!compares->memory, err != 0);
	return err;
}

static int64_t place(const struct compares *compares, int64_t offset_bytes, int64_t length_bytes)
{
	const char *data = compares_data(compares, offset_bytes, length_bytes);

	return data ? data - compares->memory - (int64_t)offsetof(struct memory, data) : -1;
}

static void test_data_of_blocks(void)
{
	struct compares compares;

	CHECK_EQUAL(map(&compares, &valid, sizeof(valid)), 0);
	CHECK_EQUAL(place(&compares, 8192, 12288), 0);
	CHECK_EQUAL(place(&compares, 8192, 512), 0);
	CHECK_EQUAL(place(&compares, 12800, 4096), 4608);
	CHECK_EQUAL(place(&compares, 19968, 512), 11776);
	CHECK_EQUAL(place(&compares, 40960, 4096), 12288);
	CHECK_EQUAL(place(&compares, 0, 4096), -1);
	CHECK_EQUAL(place(&compares, 4096, 8192), -1);
	CHECK_EQUAL(place(&compares, 16384, 8192), -1);
	CHECK_EQUAL(place(&compares, 20480, 512), -1);
	CHECK_EQUAL(place(&compares, 45056, 512), -1);
	compares_unmap(&compares);
	CHECK_EQUAL(place(&compares, 8192, 512), -1);
}

static void test_invalid_ranges(void)
{
	struct compares compares;
	struct memory bad[6];

	for (size_t i = 0; i < 6; i++)
		bad[i] = valid;
	bad[0].count = -1;
	bad[1].count = INT64_MAX;
	bad[2].ranges[1].start_bytes = 12288; /* overlaps the first */
	bad[3].ranges[0].end_bytes = 8192;
	bad[4].ranges[1].at_bytes = sizeof(valid) - 512;
	bad[5].ranges[0].at_bytes = -512;
	for (size_t i = 0; i < 6; i++)
		CHECK_EQUAL(map(&compares, &bad[i], sizeof(bad[i])), -EINVAL);
	CHECK_EQUAL(map(&compares, &valid, 4), -EINVAL);
}

/* Completes the commands of a row, which were not submitted, as a drive would. Returns the status of the row. */
static int32_t complete(struct issuer *issuer, struct io *io, const int32_t *results)
{
	struct io_uring *ring = &((struct uring *)issuer)->ring.uring;
	unsigned first = ring->sq.sqe_head & ring->sq.ring_mask, tail = *ring->cq.ktail;
	uint32_t slot;

	for (unsigned i = 0; i < PARTS; i++) {
		/* Entries of both rings are twice as large with commands. */
		struct io_uring_cqe *cqe = &ring->cq.cqes[((tail + i) & ring->cq.ring_mask) << 1];

		cqe->user_data = ring->sq.sqes[(first + i) << 1].user_data;
		cqe->res = results[i];
	}
	ring->sq.sqe_tail = ring->sq.sqe_head;
	io_uring_smp_store_release(ring->cq.ktail, tail + PARTS);
	CHECK_EQUAL(issuer->reap(issuer, io, &slot, 1), 1);
	CHECK_EQUAL(slot, 0);
	return io->status;
}

/* 4 KiB at a time of a row of 12 KiB: the drive takes no more. */
static void test_commands(void)
{
	static const int32_t equal[PARTS] = { 0 }, unequal[PARTS] = { 0, COMPARE_FAILURE, 0 },
			     failed[PARTS] = { 0, UNRECOVERED_READ, 0 };
	static struct io io = { .op = OP_COMPARE, .offset_bytes = 8192, .length_bytes = 12288, .flags = FLAG_FUA };
	static struct target target = { .namespace = 3, .logical_block_bytes = 512, .max_io_bytes = 4096,
					.size_bytes = 1 << 20, .exclusive_fd = -1, .block_device = true };
	struct payload payload;
	struct issuer_options options = { .targets = &target, .target_count = 1, .payload = &payload, .depth = 1,
					  .avoid_cpu = -1 };
	struct uring *uring;
	struct issuer *issuer;

	CHECK_EQUAL(map(&target.compares, &valid, sizeof(valid)), 0);
	target.fd = target.command_fd = memfd_create("drive", MFD_CLOEXEC);
	CHECK_EQUAL(target_fidelity(&target, OP_COMPARE, FLAG_FUA), AS_PLANNED);
	CHECK_EQUAL(target_requests(&target, OP_COMPARE, 12288), PARTS);
	CHECK_EQUAL(payload_init(&payload, &(struct payload_options){ 0 }), 0);
	issuer = uring_issuer(&options);
	if (!issuer)
		exit(SKIPPED);
	uring = (struct uring *)issuer;
	issuer->queue(issuer, &io, 0);
	CHECK_EQUAL(io.pending, PARTS);
	for (unsigned i = 0; i < PARTS; i++) {
		struct io_uring_sqe *sqe = &uring->ring.uring.sq.sqes[i << 1];
		const struct nvme_uring_cmd *command = (const struct nvme_uring_cmd *)sqe->cmd;
		const char *data = (const char *)(uintptr_t)command->addr;

		CHECK_EQUAL(sqe->opcode, IORING_OP_URING_CMD);
		CHECK_EQUAL(command->opcode, COMPARE);
		CHECK_EQUAL(command->nsid, 3);
		CHECK_EQUAL(command->cdw10, 16 + 8 * i);
		CHECK_EQUAL(command->cdw12, (1u << 30) + 7);
		CHECK_EQUAL(command->data_len, 4096);
		CHECK(data == (const char *)compares_data(&target.compares, 8192, 12288) + 4096 * i);
	}
	CHECK_EQUAL(complete(issuer, &io, equal), 0);
	CHECK(!io.unequal);
	issuer->queue(issuer, &io, 0);
	CHECK_EQUAL(complete(issuer, &io, unequal), 0);
	CHECK(io.unequal);
	issuer->queue(issuer, &io, 0);
	CHECK_EQUAL(complete(issuer, &io, failed), -EIO);
	CHECK(!io.unequal);
	compares_unmap(&target.compares);
	CHECK_EQUAL(target_fidelity(&target, OP_COMPARE, 0), DROPPED);
}

int main(void)
{
	test_data_of_blocks();
	test_invalid_ranges();
	test_commands();
	return 0;
}
