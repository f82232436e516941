/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"
#include "error.h"
#include "loop_device.h"
#include "run/clock.h"

#define TICK_MS 250

/* Of a C library before 2.36. */
#ifndef FSOPEN_CLOEXEC
#define FSOPEN_CLOEXEC 1
#define FSCONFIG_CMD_CREATE 6
#define FSMOUNT_CLOEXEC 1
#endif

/* The root of fusectl, in a mount that no directory has; -1: the kernel has no fusectl. */
static int open_fusectl(void)
{
	int context CLEANUP_CLOSE = (int)syscall(SYS_fsopen, "fusectl", FSOPEN_CLOEXEC);

	if (context < 0 || syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		return -1;
	return (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0);
}

/* Opened in advance, because a process under memory pressure may not be able to. */
static int open_abort(const char *path)
{
	int connections CLEANUP_CLOSE = open_fusectl();
	char name[32];
	struct statx status;

	/* Without a request to the server, which does not run yet. */
	if (connections < 0 || statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, 0, &status))
		return -1;
	snprintf(name, sizeof(name), "%u/abort", status.stx_dev_minor);
	return openat(connections, name, O_WRONLY | O_CLOEXEC);
}

static void take_down(const struct watchdog_shared *shared, const char *path)
{
	struct loop_device loop = { .number = atomic_load(&shared->loop_number) };

	snprintf(loop.node, sizeof(loop.node), "/dev/loop%d", loop.number);
	loop_detach(&loop, path);
	umount2(path, MNT_DETACH);
}

/* Counted in ticks of this process, because a suspended machine also stops the server. */
static void watch(const struct watchdog_shared *shared, int alive_fd, int abort_fd, const char *path, unsigned timeout_s)
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
		if (abort_fd < 0 || write(abort_fd, "1", 1) < 0)
			report_error(NULL, "cannot abort the emulated drive, which no longer answers");
		else
			report_error(NULL, "emulated drive aborted: no answer for %u s", timeout_s);
	}
	take_down(shared, path);
}

int watchdog_start(struct watchdog *watchdog, int server_fd, const char *path, unsigned timeout_s)
{
	int pipe_fds[2], abort_fd;
	pid_t pid;

	watchdog->shared = mmap(NULL, sizeof(*watchdog->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (watchdog->shared == MAP_FAILED || pipe2(pipe_fds, O_CLOEXEC))
		return report_error(NULL, "cannot start the watchdog: %s", strerror(errno));
	atomic_store(&watchdog->shared->loop_number, -1);
	abort_fd = open_abort(path);
	pid = fork();
	if (pid < 0)
		return report_error(NULL, "cannot start the watchdog: %s", strerror(errno));
	if (pid) {
		close(pipe_fds[0]);
		if (abort_fd >= 0)
			close(abort_fd);
		watchdog->alive_fd = pipe_fds[1];
		return 0;
	}
	close(pipe_fds[1]);
	close(server_fd);
	close(STDIN_FILENO);
	mlockall(MCL_CURRENT | MCL_FUTURE);
	watch(watchdog->shared, pipe_fds[0], abort_fd, path, timeout_s);
	_exit(0);
}

void watchdog_stop(struct watchdog *watchdog)
{
	close(watchdog->alive_fd);
}
