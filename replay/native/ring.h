/* SPDX-License-Identifier: GPL-2.0-or-later */
/* An io_uring with the best of what this kernel offers, found by trying. Used by the thread that made it only. */
#ifndef BLKREEL_RING_H
#define BLKREEL_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

struct ring {
	struct io_uring uring;
	bool polled;       /* completions are looked for at the drive; no interrupt tells of them */
	unsigned polling;  /* of a polled ring: rows handed over whose completion was not found yet */
	bool deferred;     /* completions come only when asked for: the flag in the SQ ring says when */
	bool single_issuer;
	bool ring_fd;
	bool fixed_files;  /* targets are known by their number instead of their descriptor */
	bool fixed_buffers;
};

/* `completions` may wait at a time. 0 or a negative errno. */
int ring_make(struct ring *ring, unsigned completions, bool plain, bool polled);

/* What the kernel need not look up for each I/O then. Helpers of the kernel's stay off a processor; -1: go anywhere. */
void ring_register(struct ring *ring, const int *fds, unsigned fd_count, const struct iovec *buffers,
		   unsigned buffer_count);
void ring_keep_helpers_off(struct ring *ring, int cpu);

/* Room for one more; sends off what is there where there is none. */
struct io_uring_sqe *ring_sqe(struct ring *ring);

/* Submits what is prepared, then sleeps until a completion is there or the time has passed. 0 or a negative errno. */
int ring_submit(struct ring *ring, int64_t wait_ns);

/* Makes completions visible that wait in the kernel, or at the drive. True: some are there. */
bool ring_look(struct ring *ring);

/*
 * The kernel takes a ring apart some time after its process has ended, and a
 * registered file stays open, and claimed, until then: the next run on this
 * drive would find it in use.
 */
void ring_release(struct ring *ring);

#endif
