/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "ring.h"

#include <errno.h>
#include <sched.h>

#include "clock.h"

/* A batch, each row of it with a flush before it or in pieces, and the offload's event. */
#define SQ_ENTRIES 64u

int ring_make(struct ring *ring, unsigned completions, bool plain, bool polled)
{
	static const unsigned ways[] = {
		/* 6.1: completions are handled when we ask, never in the middle of pacing. */
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
			IORING_SETUP_SUBMIT_ALL,
		/* 6.0, 5.19: no interrupt of the issuing thread for a completion. */
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
			IORING_SETUP_SUBMIT_ALL,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
		0,
	};
	size_t count = sizeof(ways) / sizeof(ways[0]);
	int err = -EINVAL;

	*ring = (struct ring){ .polled = polled };
	for (size_t i = plain ? count - 1 : 0; i < count; i++) {
		struct io_uring_params params = {
			.flags = ways[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | (polled ? IORING_SETUP_IOPOLL : 0),
			.cq_entries = completions + SQ_ENTRIES,
		};

		err = io_uring_queue_init_params(SQ_ENTRIES, &ring->uring, &params);
		if (!err) {
			ring->deferred = ways[i] & IORING_SETUP_DEFER_TASKRUN;
			ring->single_issuer = ways[i] & IORING_SETUP_SINGLE_ISSUER;
			return params.features & IORING_FEAT_EXT_ARG ? 0 : -EOPNOTSUPP;
		}
		if (err != -EINVAL)
			break;
	}
	return err;
}

void ring_register(struct ring *ring, const int *fds, unsigned fd_count, const struct iovec *buffers,
		   unsigned buffer_count)
{
	ring->ring_fd = io_uring_register_ring_fd(&ring->uring) == 1;
	ring->fixed_files = !io_uring_register_files(&ring->uring, fds, fd_count);
	/* Refused where the limit of locked memory is low: then the kernel maps the pages of each I/O. */
	ring->fixed_buffers = !io_uring_register_buffers(&ring->uring, buffers, buffer_count);
}

void ring_keep_helpers_off(struct ring *ring, int cpu)
{
	cpu_set_t others;

	if (cpu < 0 || sched_getaffinity(0, sizeof(others), &others))
		return;
	CPU_CLR(cpu, &others);
	if (CPU_COUNT(&others))
		io_uring_register_iowq_aff(&ring->uring, sizeof(others), &others);
}

struct io_uring_sqe *ring_sqe(struct ring *ring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);

	/* A batch finds room always. Pieces of long rows that follow on others may not: what is there goes first. */
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
		/* EBUSY and EAGAIN: the kernel wants completions taken, or has no memory at the moment. */
		if (n < 0 && n != -EINTR && n != -ETIME && n != -EAGAIN && n != -EBUSY)
			return n;
	} while (n != -EBUSY && n != -EAGAIN && io_uring_sq_ready(uring));
	return io_uring_sq_ready(uring) ? -EAGAIN : 0;
}

bool ring_look(struct ring *ring)
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
	if (ring->fixed_files)
		io_uring_unregister_files(&ring->uring);
}
