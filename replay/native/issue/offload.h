/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Blocking ioctls in worker threads: zone management, and discards on kernels whose io_uring has no such command. */
#pragma once

#include <stdint.h>

struct offload;

struct offload_result {
	uint32_t slot;
	int32_t status;
};

/* At most `depth` calls are outstanding. Returns NULL without memory or threads. */
struct offload *offload_new(unsigned depth);

/* With no call outstanding. NULL is allowed. */
void offload_free(struct offload *offload);

/* Readable while there are results. */
int offload_event_fd(struct offload *offload);

/* start, length: in the unit of the command. */
void offload_ioctl(struct offload *offload, int target_fd, unsigned long command, uint32_t slot, int64_t start,
		   int64_t length);

/* Takes the available results without waiting. */
unsigned offload_reap(struct offload *offload, struct offload_result *results, unsigned room);
