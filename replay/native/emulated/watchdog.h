/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A process beside the server, with locked memory. It aborts the connection of a server that no longer answers, so that
 * programs get EIO and do not hang; and it detaches and unmounts the drive of a server that was killed.
 */
#pragma once

#include "backend.h"

struct watchdog {
	struct watchdog_shared *shared;
	int alive_fd; /* closed by the end of the server */
};

/* Starts the process, before the server has threads. timeout_s: without an answer. Returns 0, or -1 after an error message. */
int watchdog_start(struct watchdog *watchdog, struct backend *backend, unsigned timeout_s);

void watchdog_stop(struct watchdog *watchdog);
