/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Discards by a blocking ioctl in worker threads, for kernels whose io_uring has no discard command. */
#ifndef BLKREEL_OFFLOAD_H
#define BLKREEL_OFFLOAD_H

#include <stdint.h>

struct offload;

struct offload_result {
	uint32_t slot;
	int32_t status;
};

/* At most `depth` discards are outstanding. Returns NULL without memory or threads. */
struct offload *offload_new(unsigned depth);

/* With no discard outstanding. NULL is allowed. */
void offload_free(struct offload *offload);

/* Readable while there are results. */
int offload_event_fd(struct offload *offload);

void offload_discard(struct offload *offload, int target_fd, uint32_t slot, int64_t offset_bytes,
		     int64_t length_bytes);

/* Takes the available results without waiting. */
unsigned offload_reap(struct offload *offload, struct offload_result *results, unsigned room);

#endif
