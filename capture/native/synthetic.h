/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Makes records at a rate, through the ring and all that comes behind it: for tests and measurements. */
#ifndef BLKREEL_SYNTHETIC_RUN_H
#define BLKREEL_SYNTHETIC_RUN_H

#include "programs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct synthetic {
	int program_fd;
	uint64_t per_second;
	uint64_t count;
	atomic_uint_least64_t emitted;
	uint64_t cpu_ns; /* of the thread: to be told apart from what the records cost */
	atomic_bool running;
	int done_fd; /* an eventfd: readable once all are emitted, or none could be */
	pthread_t thread;
};

/* Makes the thread, which waits for synthetic_begin(). Returns 0 or a negative errno. */
int synthetic_open(struct synthetic *synthetic, const struct programs *programs, uint64_t per_second, uint64_t count);

void synthetic_begin(struct synthetic *synthetic);

/* Ends the thread, wherever it is. */
void synthetic_close(struct synthetic *synthetic);

#endif
