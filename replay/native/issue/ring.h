/* SPDX-License-Identifier: GPL-2.0-or-later */
/* An io_uring with the newest features that the kernel accepts. Only the thread that made it uses it. */
#pragma once

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

struct ring {
	struct io_uring uring;
	bool initialized;
	bool polled;       /* completions are polled at the drive */
	unsigned polling;  /* in a polled ring: submissions without a completion yet */
	bool deferred;     /* completions need io_uring_get_events; a flag in the SQ ring signals them */
	bool single_issuer;
	bool ring_fd;
	bool registered_files;
	bool fixed_files;  /* targets go by their index instead of their descriptor */
	bool fixed_buffers;
};

/*
 * Disabled until ring_enable(). completions: the most that may be unreaped at a time. commands: entries have room for
 * a command of NVMe, since Linux 5.19. Returns 0 or a negative errno.
 */
int ring_init(struct ring *ring, unsigned completions, bool plain, bool polled, bool commands);

void ring_deinit(struct ring *ring);

/*
 * Registers files. They stay open until the last I/O of the ring is done, also if the process is killed before: with
 * the descriptors that claim the targets, nobody else gets a drive that is still written to.
 */
void ring_register_files(struct ring *ring, const int *fds, unsigned count);

/* Lets I/Os use the registered files and these buffers, so that the kernel does not look them up for each I/O. */
void ring_use_registered(struct ring *ring, const struct iovec *buffers, unsigned count);

/* Keeps io_uring workers off a CPU; -1: off none. */
void ring_avoid_cpu(struct ring *ring, int cpu);

/*
 * Lets the kernel take submissions from now on, and only the operations of a replay: seccomp sees none of them, and
 * io_uring could also open files and sockets. Nothing is registered afterwards. Returns 0 or a negative errno.
 */
int ring_enable(struct ring *ring);

/* Returns a free submission entry; submits the prepared ones first if the queue is full. */
struct io_uring_sqe *ring_sqe(struct ring *ring);

/* Submits the prepared entries, then waits up to wait_ns for a completion. Returns 0 or a negative errno. */
int ring_submit(struct ring *ring, int64_t wait_ns);

/* Fetches completions from the kernel or the polled drive. Returns whether there are any. */
bool ring_poll(struct ring *ring);

/*
 * Closes the registered files. Otherwise they stay open, and the drive claimed, until the kernel frees the ring some
 * time after the process has ended, and the next run finds the drive in use.
 */
void ring_release(struct ring *ring);
