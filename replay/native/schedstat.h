/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How long the calling thread waited for a processor, by the scheduler's own account. */
#ifndef BLKREEL_SCHEDSTAT_H
#define BLKREEL_SCHEDSTAT_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

struct schedstat {
	int64_t waited_ns; /* ready to run without a processor */
};

/* Of the calling thread; -1 where the kernel keeps no such account. */
static inline int schedstat_open(void)
{
	return open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
}

/* Left as it was where it can't be read. */
static inline void schedstat_read(int fd, struct schedstat *stat)
{
	char text[96];
	ssize_t size = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
	char *end;

	if (size <= 0)
		return;
	text[size] = '\0';
	strtoll(text, &end, 10); /* time on a processor: up to the last tick only, so it is read elsewhere */
	stat->waited_ns = strtoll(end, NULL, 10);
}

#endif
