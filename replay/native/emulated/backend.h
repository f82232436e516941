/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The two ways from an emulated drive to a block device: FUSE and a loop device (fuse.c), or ublk (ublk.c). A back end
 * reads requests, passes them to server_take(), and replies when delay.h says so.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transfer.h"

/* Shared by the server and its watchdog. */
struct watchdog_shared {
	_Atomic uint64_t beat;     /* changes while the server works */
	_Atomic int64_t oldest_ns; /* of CLOCK_MONOTONIC, since when a reply is overdue; 0: none is */
	atomic_int device_number;  /* N of the device's node; -1: none */
};

struct backend {
	const char *name;
	char node[32];     /* of the device, after attach() */
	atomic_bool ended; /* the kernel ended the connection */

	/*
	 * Before the process has threads. path: a regular file for this drive alone. inode_number identifies its contents.
	 * Returns 0, or -1 after an error message; so does attach().
	 */
	int (*open)(struct backend *backend, const char *path, uint64_t inode_number);
	/* Serves in threads of its own, and makes the device. Its number goes to the watchdog. */
	int (*attach)(struct backend *backend, struct server *server, struct watchdog_shared *shared);
	/* Programs that have the device open go on, and it goes when the last of them has closed it. NULL: it stays. */
	void (*begin_end)(struct backend *backend);
	bool (*is_open)(struct backend *backend);
	/* Removes the device, even if programs still have it open, and ends the threads. */
	void (*end)(struct backend *backend);

	/* In the watchdog, a process of its own. First, closes what only the server may keep open. */
	void (*watch)(struct backend *backend, int server_pid);
	/* Ends the connection, so that programs get EIO. Returns false if it can't. */
	bool (*abort)(struct backend *backend);
	/* Removes what a server that ended may leave. device_number: as in watchdog_shared. */
	void (*take_down)(struct backend *backend, int device_number);
};

struct backend *fuse_backend(void);
struct backend *ublk_backend(void);

/* Whether the kernel has ublk with what ublk_backend() needs, and its module is loaded. */
bool ublk_is_supported(void);

/* Removes a device that a killed server left, if it is the one with this key. */
void ublk_remove(unsigned device_number, uint64_t key);
