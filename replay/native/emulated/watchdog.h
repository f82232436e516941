/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A process beside the server, with locked memory. It aborts the connection of a server that no longer answers, so that
 * programs get EIO and do not hang; and it detaches and unmounts the drive of a server that was killed.
 */
#ifndef BLKREEL_WATCHDOG_H
#define BLKREEL_WATCHDOG_H

#include <stdatomic.h>
#include <stdint.h>

/* In memory that both processes share. */
struct watchdog_shared {
	_Atomic uint64_t beat;    /* changes while the server works */
	_Atomic int64_t oldest_ns; /* of CLOCK_MONOTONIC, since when a reply is overdue; 0: none is */
	atomic_int loop_number;    /* -1: none */
};

struct watchdog {
	struct watchdog_shared *shared;
	int alive_fd; /* closed by the end of the server */
};

/*
 * Starts the process, before the server has threads. server_fd: of /dev/fuse, which only the server may keep open, so
 * that its death ends the connection. path: the mounted file. timeout_s: without an answer. Returns 0, or -1 after an
 * error message.
 */
int watchdog_start(struct watchdog *watchdog, int server_fd, const char *path, unsigned timeout_s);

void watchdog_stop(struct watchdog *watchdog);

#endif
