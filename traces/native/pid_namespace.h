/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The PID namespace of this process. The kernel's events have the numbers of the initial one. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#define INITIAL_PID_NAMESPACE 0xEFFFFFFCu /* PROC_PID_INIT_INO of include/uapi/linux/nsfs.h */

/* Whether processes have the numbers of the initial namespace here. */
static inline bool pid_namespace_is_initial(void)
{
	struct stat status;

	/* It fails on a kernel without namespaces, and without /proc. */
	return stat("/proc/self/ns/pid", &status) || status.st_ino == INITIAL_PID_NAMESPACE;
}
