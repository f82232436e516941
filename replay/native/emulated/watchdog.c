/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "error.h"
#include "run/clock.h"

#define TICK_MS 250

/* Counted in ticks of this process, because a suspended machine also stops the server. */
static void watch(const struct watchdog_shared *shared, int alive_fd, struct backend *backend, unsigned timeout_s)
{
	const unsigned limit = timeout_s * 1000 / TICK_MS;
	unsigned silent = 0, overdue = 0;
	uint64_t last_beat = 0;
	int64_t last_oldest_ns = 0;
	bool aborted = false;

	for (;;) {
		struct pollfd alive = { .fd = alive_fd, .events = POLLIN };
		uint64_t beat = atomic_load(&shared->beat);
		int64_t oldest_ns = atomic_load(&shared->oldest_ns);

		if (poll(&alive, 1, TICK_MS) > 0)
			break;
		silent = beat == last_beat ? silent + 1 : 0;
		last_beat = beat;
		overdue = oldest_ns == last_oldest_ns && oldest_ns && monotonic_ns() > oldest_ns ? overdue + 1 : 0;
		last_oldest_ns = oldest_ns;
		if (aborted || (silent < limit && overdue < limit))
			continue;
		aborted = true;
		if (backend->abort(backend))
			report_error(NULL, "emulated drive aborted: no answer for %u s", timeout_s);
		else
			report_error(NULL, "cannot abort the emulated drive, which no longer answers");
	}
	backend->take_down(backend, atomic_load(&shared->device_number));
}

int watchdog_start(struct watchdog *watchdog, struct backend *backend, unsigned timeout_s)
{
	int pipe_fds[2], server_pid = getpid();
	pid_t pid;

	watchdog->shared = mmap(NULL, sizeof(*watchdog->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (watchdog->shared == MAP_FAILED || pipe2(pipe_fds, O_CLOEXEC))
		return report_error(NULL, "cannot start the watchdog: %s", strerror(errno));
	atomic_store(&watchdog->shared->device_number, -1);
	pid = fork();
	if (pid < 0)
		return report_error(NULL, "cannot start the watchdog: %s", strerror(errno));
	if (pid) {
		close(pipe_fds[0]);
		watchdog->alive_fd = pipe_fds[1];
		return 0;
	}
	close(pipe_fds[1]);
	close(STDIN_FILENO);
	backend->watch(backend, server_pid);
	mlockall(MCL_CURRENT | MCL_FUTURE);
	watch(watchdog->shared, pipe_fds[0], backend, timeout_s);
	_exit(0);
}

void watchdog_stop(struct watchdog *watchdog)
{
	close(watchdog->alive_fd);
}
