/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The time that a thread waited for a CPU, from the scheduler's statistics. */
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* The statistics of the calling thread; -1 on a kernel without CONFIG_SCHED_INFO. */
static inline int schedstat_open(void)
{
	return open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
}

/* Nanoseconds ready to run without a CPU; `otherwise` if the file cannot be read. */
static inline int64_t schedstat_waited_ns(int fd, int64_t otherwise)
{
	char text[96], *end;
	ssize_t size = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);

	if (size <= 0)
		return otherwise;
	text[size] = '\0';
	strtoll(text, &end, 10); /* the run time, which the kernel updates only at each tick */
	return strtoll(end, NULL, 10);
}
