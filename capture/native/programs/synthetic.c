/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "synthetic.h"
#include "clock.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PAUSE_NS 1000000
#define MAX_BATCH 8192

static int emit_batch(struct synthetic *synthetic, uint64_t first, uint32_t count)
{
	struct synthetic_args args = { .first = first, .count = count };
	LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &args, .ctx_size_in = sizeof(args));

	return bpf_prog_test_run_opts(synthetic->program_fd, &options);
}

/* Emits the records that are due since began_ns. Returns 0 or an error. */
static int emit_due(struct synthetic *synthetic, uint64_t began_ns)
{
	uint64_t emitted = atomic_load(&synthetic->emitted);
	uint64_t due = (uint64_t)((double)(monotonic_ns() - began_ns) * 1e-9 * (double)synthetic->per_second);
	int err = 0;

	if (due > synthetic->count)
		due = synthetic->count;
	while (!err && emitted < due) {
		uint32_t count = due - emitted < MAX_BATCH ? (uint32_t)(due - emitted) : MAX_BATCH;

		err = emit_batch(synthetic, emitted, count);
		if (!err) {
			emitted += count;
			atomic_store(&synthetic->emitted, emitted);
		}
	}
	return err;
}

static void *emit_all(void *argument)
{
	struct synthetic *synthetic = argument;
	uint64_t began_ns = 0;

	while (!atomic_load(&synthetic->stopped) && atomic_load(&synthetic->emitted) < synthetic->count) {
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
		if (!atomic_load(&synthetic->running))
			continue;
		if (!began_ns)
			began_ns = monotonic_ns();
		if (emit_due(synthetic, began_ns))
			break;
	}
	synthetic->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	eventfd_write(synthetic->done_fd, 1);
	return NULL;
}

int synthetic_init(struct synthetic *synthetic, const struct programs *programs, uint64_t per_second, uint64_t count)
{
	int err;

	*synthetic = (struct synthetic){ .per_second = per_second, .count = count };
	synthetic->program_fd = bpf_program__fd(bpf_object__find_program_by_name(programs->object, "synthetic"));
	if (synthetic->program_fd < 0)
		return -EINVAL;
	synthetic->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (synthetic->done_fd < 0)
		return -errno;
	err = pthread_create(&synthetic->thread, NULL, emit_all, synthetic);
	synthetic->started = !err;
	if (err)
		close(synthetic->done_fd);
	return -err;
}

void synthetic_begin(struct synthetic *synthetic)
{
	atomic_store(&synthetic->running, true);
}

void synthetic_deinit(struct synthetic *synthetic)
{
	if (!synthetic->started)
		return;
	atomic_store(&synthetic->stopped, true);
	pthread_join(synthetic->thread, NULL);
	synthetic->started = false;
	close(synthetic->done_fd);
}
