/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Synthetic records at a rate, through the ring and everything behind it: for tests and measurements. */
#pragma once

#include "programs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct synthetic {
	int program_fd;
	uint64_t per_second;
	uint64_t count;
	atomic_uint_least64_t emitted;
	uint64_t cpu_ns; /* of the thread, to be subtracted from the cost of the records */
	atomic_bool running;
	atomic_bool stopped;
	int done_fd; /* eventfd, readable after the last record or an error */
	pthread_t thread;
	bool started;
};

/* Starts the thread, which waits for synthetic_begin(). Returns 0 or a negative errno. */
int synthetic_init(struct synthetic *synthetic, const struct programs *programs, uint64_t per_second, uint64_t count);

void synthetic_begin(struct synthetic *synthetic);

/* Ends the thread, also before the last record. The counts stay. */
void synthetic_deinit(struct synthetic *synthetic);
