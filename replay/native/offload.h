/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Discards for kernels whose io_uring has no command for them: a blocking ioctl, off the issuing thread. */
#ifndef BLKREEL_OFFLOAD_H
#define BLKREEL_OFFLOAD_H

#include <stdint.h>

struct offload;

struct offload_result {
	uint32_t slot;
	int32_t status;
};

/* At most `depth` discards are outstanding. NULL: no memory or no thread. */
struct offload *offload_start(unsigned depth);

/* Becomes readable when results are there. */
int offload_event_fd(struct offload *offload);

void offload_discard(struct offload *offload, int target_fd, uint32_t slot, int64_t offset_bytes,
		     int64_t length_bytes);

/* Takes results that are there, without waiting. */
unsigned offload_reap(struct offload *offload, struct offload_result *results, unsigned room);

#endif
