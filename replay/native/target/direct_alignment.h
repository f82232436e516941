/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>

/* The alignment of offset and length for direct I/O on a file. */
static inline uint32_t direct_alignment(int fd)
{
#ifdef STATX_DIOALIGN
	struct statx status;

	if (!statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) && status.stx_mask & STATX_DIOALIGN &&
	    status.stx_dio_offset_align > 512)
		return status.stx_dio_offset_align;
#endif
	(void)fd;
	return 512;
}
