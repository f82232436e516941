/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "ring.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "run/clock.h"

/* For a batch of rows with preflushes or in pieces, and the event of the offload. */
#define SQ_ENTRIES 64u

int ring_init(struct ring *ring, unsigned completions, bool plain, bool polled, bool commands)
{
	static const unsigned flags[] = {
		/* Linux 6.1: completions are processed on request, never during pacing. */
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
			IORING_SETUP_SUBMIT_ALL,
		/* Linux 6.0, 5.19: completions do not interrupt the issuing thread. */
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
			IORING_SETUP_SUBMIT_ALL,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
		0,
	};
	const unsigned always = IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP |
				(polled ? IORING_SETUP_IOPOLL : 0) |
				(commands ? IORING_SETUP_SQE128 | IORING_SETUP_CQE32 : 0);
	size_t count = sizeof(flags) / sizeof(flags[0]);
	int err = -EINVAL;

	*ring = (struct ring){ .polled = polled };
	for (size_t i = plain ? count - 1 : 0; i < count; i++) {
		struct io_uring_params params = {
			.flags = flags[i] | always,
			.cq_entries = completions + SQ_ENTRIES,
		};

		err = io_uring_queue_init_params(SQ_ENTRIES, &ring->uring, &params);
		if (!err) {
			ring->initialized = true;
			ring->deferred = flags[i] & IORING_SETUP_DEFER_TASKRUN;
			ring->single_issuer = flags[i] & IORING_SETUP_SINGLE_ISSUER;
			return params.features & IORING_FEAT_EXT_ARG ? 0 : -EOPNOTSUPP;
		}
		if (err != -EINVAL)
			break;
	}
	return err;
}

void ring_deinit(struct ring *ring)
{
	if (ring->initialized)
		io_uring_queue_exit(&ring->uring);
	ring->initialized = false;
}

void ring_register_files(struct ring *ring, const int *fds, unsigned count)
{
	ring->registered_files = !io_uring_register_files(&ring->uring, fds, count);
}

void ring_use_registered(struct ring *ring, const struct iovec *buffers, unsigned count)
{
	ring->ring_fd = io_uring_register_ring_fd(&ring->uring) == 1;
	ring->fixed_files = ring->registered_files;
	/* A low limit of locked memory refuses this; then the kernel maps the pages of each I/O. */
	ring->fixed_buffers = !io_uring_register_buffers(&ring->uring, buffers, count);
}

void ring_avoid_cpu(struct ring *ring, int cpu)
{
	cpu_set_t others;

	if (cpu < 0 || sched_getaffinity(0, sizeof(others), &others))
		return;
	CPU_CLR(cpu, &others);
	if (CPU_COUNT(&others))
		io_uring_register_iowq_aff(&ring->uring, sizeof(others), &others);
}

#define OPERATION(name) { .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_##name }
#define REGISTRATION(name) { .opcode = IORING_RESTRICTION_REGISTER_OP, .register_op = IORING_##name }

/* liburing 2.3 declares its functions for these, and does not export them. Returns 0 or a negative errno. */
static int register_by_number(const struct ring *ring, unsigned number, const void *argument, unsigned count)
{
	return syscall(SYS_io_uring_register, ring->uring.ring_fd, number, argument, count) ? -errno : 0;
}

int ring_enable(struct ring *ring)
{
	struct io_uring_restriction restrictions[] = {
		{ .opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED,
		  .sqe_flags = IOSQE_FIXED_FILE | IOSQE_IO_LINK | IOSQE_ASYNC },
		OPERATION(READ),
		OPERATION(READ_FIXED),
		OPERATION(WRITE),
		OPERATION(WRITE_FIXED),
		OPERATION(FSYNC),
		OPERATION(FALLOCATE),
		REGISTRATION(UNREGISTER_FILES),
		/* Last, because Linux before 5.19 does not know these. */
		REGISTRATION(UNREGISTER_RING_FDS),
		OPERATION(URING_CMD),
	};
	const unsigned count = sizeof(restrictions) / sizeof(restrictions[0]), recent = 2;
	int err = register_by_number(ring, IORING_REGISTER_RESTRICTIONS, restrictions, count);

	if (err == -EINVAL)
		err = register_by_number(ring, IORING_REGISTER_RESTRICTIONS, restrictions, count - recent);
	return err ? err : register_by_number(ring, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
}

struct io_uring_sqe *ring_sqe(struct ring *ring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);

	/* A batch always has room; later pieces of long rows may not. */
	while (!sqe) {
		io_uring_submit(&ring->uring);
		sqe = io_uring_get_sqe(&ring->uring);
	}
	return sqe;
}

int ring_submit(struct ring *ring, int64_t wait_ns)
{
	struct __kernel_timespec span = { wait_ns / NS_PER_S, wait_ns % NS_PER_S };
	struct io_uring *uring = &ring->uring;
	struct io_uring_cqe *cqe;
	int n;

	do {
		if (wait_ns > 0)
			n = io_uring_submit_and_wait_timeout(uring, &cqe, 1, &span, NULL);
		else if (ring->deferred)
			n = io_uring_submit_and_get_events(uring);
		else
			n = io_uring_submit(uring);
		/* EBUSY: completions must be reaped first. EAGAIN: the kernel is out of memory at the moment. */
		if (n < 0 && n != -EINTR && n != -ETIME && n != -EAGAIN && n != -EBUSY)
			return n;
	} while (n != -EBUSY && n != -EAGAIN && io_uring_sq_ready(uring));
	return io_uring_sq_ready(uring) ? -EAGAIN : 0;
}

bool ring_poll(struct ring *ring)
{
	struct io_uring *uring = &ring->uring;

	if (io_uring_cq_ready(uring))
		return true;
	if (ring->polled ? !ring->polling :
			   !(IO_URING_READ_ONCE(*uring->sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)))
		return false;
	io_uring_get_events(uring);
	return io_uring_cq_ready(uring);
}

void ring_release(struct ring *ring)
{
	if (ring->registered_files)
		io_uring_unregister_files(&ring->uring);
}
