/* SPDX-License-Identifier: GPL-2.0-or-later */
/* open_memstream fails from some call on: the run ends with a message that names the memory, never silently. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "run/exit_code.h"
#include "run/run.h"

FILE *__real_open_memstream(char **bytes, size_t *length);
FILE *__wrap_open_memstream(char **bytes, size_t *length);

static atomic_int streams_left; /* calls until the first that fails */

FILE *__wrap_open_memstream(char **bytes, size_t *length)
{
	if (atomic_fetch_sub(&streams_left, 1) > 0)
		return __real_open_memstream(bytes, length);
	errno = ENOMEM;
	return NULL;
}

/* Runs an empty plan on a nil target. Returns the exit code, and what the run wrote to stderr. */
static int run_with(int streams, const struct host_cpus *cpus, char *message, size_t size)
{
	static struct stop stop;
	struct target target = { .path = "nil", .fd = -1, .size_bytes = 1 << 20, .logical_block_bytes = 512 };
	struct run_options options = {
		.targets = &target, .target_count = 1, .lane_count = 1, .stop_ns = INT64_MAX, .cpus = cpus,
		.nil_targets = true,
		.lanes = { { .fd = open("/dev/null", O_RDONLY | O_CLOEXEC), .depth = 1 } },
	};
	int errors = dup(STDERR_FILENO), pipes[2], code;
	ssize_t length;

	CHECK(!pipe2(pipes, O_CLOEXEC | O_NONBLOCK) && errors >= 0 && options.lanes[0].fd >= 0);
	stop = (struct stop){ 0 };
	dup2(pipes[1], STDERR_FILENO);
	streams_left = streams;
	code = run_replay(&options, &stop);
	dup2(errors, STDERR_FILENO);
	length = read(pipes[0], message, size - 1);
	message[length < 0 ? 0 : length] = 0;
	close(errors);
	close(pipes[0]);
	close(pipes[1]);
	close(options.lanes[0].fd);
	return code;
}

int main(void)
{
	static struct host_cpus cpus;
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), code = EXIT_FAILED;
	char message[512];

	CHECK(null >= 0 && dup2(null, STDOUT_FILENO) >= 0 && host_cpus_init(&cpus));
	CHECK_EQUAL(run_with(INT_MAX, &cpus, message, sizeof(message)), EXIT_DONE);
	CHECK(!message[0]);
	for (int streams = 0; code != EXIT_DONE; streams++) {
		code = run_with(streams, &cpus, message, sizeof(message));
		CHECK(streams < 100);
		CHECK(code == EXIT_DONE || strstr(message, strerror(ENOMEM)));
		CHECK(streams || code == EXIT_FAILED);
	}
	return 0;
}
