/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "synthetic.h"
#include "drain.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_NS 1000000
#define MAX_BATCH 8192

static int emit_batch(struct synthetic *synthetic, uint64_t first, uint32_t count)
{
	struct synthetic_args args = { .first = first, .count = count };
	LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &args, .ctx_size_in = sizeof(args));

	return bpf_prog_test_run_opts(synthetic->program_fd, &options);
}

static void *emit_all(void *argument)
{
	struct synthetic *synthetic = argument;
	uint64_t began_ns = 0, emitted = 0, one = 1;
	struct timespec cpu;

	while (emitted < synthetic->count) {
		bool running = atomic_load(&synthetic->running);
		uint64_t due;

		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
		if (!running && began_ns)
			break;
		if (!running)
			continue;
		if (!began_ns)
			began_ns = monotonic_ns();
		due = (uint64_t)((monotonic_ns() - began_ns) * 1e-9 * synthetic->per_second);
		if (due > synthetic->count)
			due = synthetic->count;
		while (emitted < due) {
			uint32_t count = due - emitted < MAX_BATCH ? due - emitted : MAX_BATCH;

			if (emit_batch(synthetic, emitted, count))
				goto out;
			emitted += count;
			atomic_store(&synthetic->emitted, emitted);
		}
	}
out:
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
	synthetic->cpu_ns = (uint64_t)cpu.tv_sec * 1000000000ull + cpu.tv_nsec;
	if (write(synthetic->done_fd, &one, sizeof(one)) < 0)
		return NULL; /* only EAGAIN is possible: it is readable already */
	return NULL;
}

int synthetic_open(struct synthetic *synthetic, const struct programs *programs, uint64_t per_second, uint64_t count)
{
	*synthetic = (struct synthetic){ .per_second = per_second, .count = count };
	synthetic->program_fd = bpf_program__fd(bpf_object__find_program_by_name(programs->object, "synthetic"));
	synthetic->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (synthetic->program_fd < 0 || synthetic->done_fd < 0)
		return -EINVAL;
	return -pthread_create(&synthetic->thread, NULL, emit_all, synthetic);
}

void synthetic_begin(struct synthetic *synthetic)
{
	atomic_store(&synthetic->running, true);
}

void synthetic_close(struct synthetic *synthetic)
{
	atomic_store(&synthetic->running, false);
	pthread_join(synthetic->thread, NULL);
	close(synthetic->done_fd);
}
