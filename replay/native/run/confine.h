/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Confinement of the helper: what it could do beyond its run, if a plan or a drive made it misbehave. */
#pragma once

#include <stdbool.h>

enum thread_role {
	ISSUING_THREAD, /* changes its own priority, and has its stack locked */
	OTHER_THREAD,
};

/*
 * Called with the targets open, before there are other threads: root becomes nobody, and keeps the capabilities that
 * preparing a run takes. commands: a ring passes commands to drives, which takes CAP_SYS_ADMIN
 * before Linux 6.2. Returns 0 or a negative errno.
 */
int confine_process(bool commands);

/*
 * Leaves the calling thread the capabilities of its role and the system calls of a run: it opens, executes, connects,
 * maps and starts nothing. Any other system call fails with EPERM. A kernel without seccomp does not filter them.
 */
void confine_thread(enum thread_role role);
