/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Outstanding writes keep their data when io_uring completes late and out of order. A full pipe holds a write until
 * the test reads the pipe, which then returns the data that the kernel read from the buffer. The ring refuses what no
 * replay needs.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "issue/uring.h"
#include "run/clock.h"

#define HELD 8u /* targets 0 to 7 are full pipes, and the last one is memory */
#define DEPTH 16u
#define PIPE_BYTES (1 << 20)
#define MEMORY_BYTES (64ll << 20)
#define SKIPPED 77

struct held {
	int read_fd;
	int64_t length_bytes;
	const char *data;
	char *sent;
};

static struct target targets[HELD + 1];
static struct held held[HELD];
static struct io ios[DEPTH];
static struct payload payload;
static struct issuer *issuer;
static unsigned outstanding;
static char pipe_bytes[PIPE_BYTES];

static void make_targets(void)
{
	for (unsigned i = 0; i < HELD; i++) {
		int ends[2];

		CHECK_EQUAL(pipe(ends), 0);
		CHECK_EQUAL(fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES), PIPE_BYTES);
		CHECK_EQUAL(write(ends[1], pipe_bytes, PIPE_BYTES), PIPE_BYTES);
		held[i].read_fd = ends[0];
		targets[i] = (struct target){ .fd = ends[1], .may_write = true, .size_bytes = 1ll << 40,
					      .logical_block_bytes = 512 };
	}
	targets[HELD] = (struct target){ .fd = memfd_create("memory", MFD_CLOEXEC), .may_write = true,
					 .size_bytes = MEMORY_BYTES, .logical_block_bytes = 512 };
	CHECK_EQUAL(ftruncate(targets[HELD].fd, MEMORY_BYTES), 0);
}

static void queue(uint32_t slot, int16_t target, int64_t offset_bytes, int64_t length_bytes)
{
	struct io *io = &ios[slot];

	CHECK(payload_has_room(&payload, row_buffer_bytes(length_bytes)));
	*io = (struct io){ .op = OP_WRITE, .target = target, .offset_bytes = offset_bytes, .length_bytes = length_bytes };
	issuer->queue(issuer, io, slot);
	CHECK_EQUAL(issuer->submit(issuer, 0), 0);
	outstanding++;
}

/* Waits for at least one completion. Returns the slot of the last one. */
static uint32_t reap(void)
{
	uint32_t slots[REAP_ROWS] = { 0 };
	unsigned count = 0;

	while (!count) {
		CHECK_EQUAL(issuer->submit(issuer, NS_PER_S), 0);
		count = issuer->reap(issuer, ios, slots, REAP_ROWS);
	}
	for (unsigned i = 0; i < count; i++)
		CHECK_EQUAL(ios[slots[i]].status, 0);
	outstanding -= count;
	return slots[count - 1];
}

static void hold_writes(void)
{
	static const int64_t lengths[HELD] = { 4096, 512, 4608, 65536, 12288, 4096, 1 << 20, 131072 };
	struct uring *uring = (struct uring *)issuer;

	for (unsigned i = 0; i < HELD; i++) {
		struct held *write = &held[i];

		queue(i, i, (int64_t)i << 30, lengths[i]);
		write->length_bytes = lengths[i];
		write->data = uring->transfers[i].data;
		write->sent = malloc(lengths[i]);
		CHECK(write->sent);
		memcpy(write->sent, write->data, lengths[i]);
	}
}

static void check_data_at(int64_t offset_bytes, const char *data, int64_t length_bytes)
{
	struct payload_stamp stamp;

	for (int64_t at = 0; at < length_bytes; at += STAMP_EVERY_BYTES) {
		memcpy(&stamp, data + at, sizeof(stamp));
		CHECK_EQUAL(stamp.offset_bytes, offset_bytes + at);
	}
}

/* Several rounds of the pool, with rows that complete at once, some of them in several pieces. */
static void write_past_held_ones(void)
{
	static const int64_t lengths[] = { 4096, 65536, 1 << 20, 4096, 11 << 20 };
	const char *memory = mmap(NULL, MEMORY_BYTES, PROT_READ, MAP_SHARED, targets[HELD].fd, 0);
	int64_t offset_bytes = 0;

	CHECK(memory != MAP_FAILED);
	for (unsigned i = 0; i < 120; i++) {
		int64_t length_bytes = lengths[i % 5];

		if (offset_bytes + length_bytes > MEMORY_BYTES)
			offset_bytes = 0;
		queue(HELD, HELD, offset_bytes, length_bytes);
		CHECK_EQUAL(reap(), HELD);
		check_data_at(offset_bytes, memory + offset_bytes, length_bytes);
		offset_bytes += length_bytes;
	}
	munmap((void *)memory, MEMORY_BYTES);
}

/* In reverse order. The kernel reads each buffer only now. */
static void release_writes(void)
{
	for (unsigned i = HELD; i-- > 0;) {
		struct held *write = &held[i];

		CHECK(!memcmp(write->data, write->sent, write->length_bytes));
		CHECK_EQUAL(read(write->read_fd, pipe_bytes, PIPE_BYTES), PIPE_BYTES);
		CHECK_EQUAL(reap(), i);
		CHECK_EQUAL(read(write->read_fd, pipe_bytes, PIPE_BYTES), write->length_bytes);
		CHECK(!memcmp(pipe_bytes, write->sent, write->length_bytes));
		check_data_at((int64_t)i << 30, pipe_bytes, write->length_bytes);
		free(write->sent);
	}
	CHECK_EQUAL(outstanding, 0);
	CHECK(payload_has_room(&payload, payload.pool_bytes));
}

/* What seccomp does not see: io_uring could open a file, connect a socket, or register memory. */
static void check_refused_operations(void)
{
	struct io_uring *ring = &((struct uring *)issuer)->ring.uring;
	struct iovec buffer = { pipe_bytes, sizeof(pipe_bytes) };

	for (int flags = 0; flags < 2; flags++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
		struct io_uring_cqe *cqe;

		if (flags)
			io_uring_prep_fsync(sqe, targets[HELD].fd, 0);
		else
			io_uring_prep_openat(sqe, AT_FDCWD, "/dev/null", O_RDONLY, 0);
		sqe->flags |= flags ? IOSQE_IO_DRAIN : 0;
		CHECK_EQUAL(io_uring_submit_and_wait(ring, 1), 1);
		CHECK_EQUAL(io_uring_wait_cqe(ring, &cqe), 0);
		CHECK_EQUAL(cqe->res, -EACCES);
		io_uring_cqe_seen(ring, cqe);
	}
	CHECK_EQUAL(io_uring_register_buffers(ring, &buffer, 1), -EACCES);
}

/* As a kernel without memory for a second request: it takes the first of the prepared entries. */
static void submit_one_entry(void)
{
	struct io_uring *ring = &((struct uring *)issuer)->ring.uring;

	ring->sq.sqe_head = ring->sq.sqe_tail;
	__atomic_store_n(ring->sq.ktail, ring->sq.sqe_tail, __ATOMIC_RELEASE);
	CHECK_EQUAL(syscall(SYS_io_uring_enter, ring->ring_fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0), 1);
}

/* A row that the kernel has taken may complete before the others of its batch are submitted. */
static void check_batch_taken_in_parts(void)
{
	uint32_t slots[REAP_ROWS];

	for (uint32_t slot = HELD; slot < HELD + 2; slot++) {
		ios[slot] = (struct io){ .op = OP_WRITE, .target = HELD, .offset_bytes = 4096 * slot, .length_bytes = 4096 };
		issuer->queue(issuer, &ios[slot], slot);
	}
	CHECK(!issuer->has_taken(issuer, HELD) && !issuer->has_taken(issuer, HELD + 1));
	submit_one_entry();
	CHECK(issuer->has_taken(issuer, HELD) && !issuer->has_taken(issuer, HELD + 1));
	outstanding += 2;
	CHECK_EQUAL(issuer->reap(issuer, ios, slots, REAP_ROWS), 1);
	CHECK_EQUAL(slots[0], HELD);
	CHECK(issuer->has_taken(issuer, HELD + 1)); /* reap submits what waits */
	outstanding--;
	CHECK_EQUAL(reap(), HELD + 1);
}

static void test_held_writes_keep_their_data(bool plain)
{
	struct issuer_options options = { .targets = targets, .target_count = HELD + 1, .payload = &payload,
					  .depth = DEPTH, .plain = plain, .avoid_cpu = -1 };

	make_targets();
	CHECK_EQUAL(payload_init(&payload, &(struct payload_options){ .seed = 5, .writes = true }), 0);
	issuer = uring_issuer(&options);
	if (!issuer)
		exit(SKIPPED);
	check_refused_operations();
	check_batch_taken_in_parts();
	hold_writes();
	write_past_held_ones();
	CHECK_EQUAL(outstanding, HELD);
	release_writes();
	issuer->release(issuer);
	issuer->deinit(issuer);
	for (unsigned i = 0; i <= HELD; i++)
		close(targets[i].fd);
	for (unsigned i = 0; i < HELD; i++)
		close(held[i].read_fd);
	payload_deinit(&payload);
}

int main(void)
{
	test_held_writes_keep_their_data(false);
	test_held_writes_keep_their_data(true);
	return 0;
}
