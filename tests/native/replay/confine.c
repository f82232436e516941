/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A confined thread runs its I/O and its own threads, and can do nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <linux/blkzoned.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "run/confine.h"

#define SKIPPED 77
#define PAGE_BYTES 4096

#define CHECK_DENIED(call)                       \
	do {                                     \
		errno = 0;                       \
		CHECK_EQUAL((long)(call), -1);   \
		CHECK_EQUAL(errno, EPERM);       \
	} while (0)

static void *start_nothing(void *argument)
{
	return argument;
}

static void check_denied(void)
{
	char *const words[] = { "/bin/true", NULL };
	pthread_t thread;

	CHECK_DENIED(open("/dev/null", O_RDONLY));
	CHECK_DENIED(execve(words[0], words, words + 1));
	CHECK_DENIED(fork());
	CHECK_DENIED(socket(AF_UNIX, SOCK_STREAM, 0));
	CHECK_DENIED(syscall(SYS_ptrace, 0, 0, 0, 0));
	CHECK_DENIED(syscall(SYS_mount, "none", "/", "tmpfs", 0, NULL));
	CHECK_DENIED(syscall(SYS_bpf, 0, NULL, 0));
	CHECK_DENIED(syscall(SYS_io_uring_setup, 1, NULL));
	CHECK_DENIED(kill(getppid(), 0));
	CHECK_DENIED(syscall(SYS_tgkill, getppid(), getppid(), 0));
	CHECK_DENIED(setpriority(PRIO_PROCESS, (id_t)getppid(), 0));
	CHECK_DENIED(syscall(SYS_sched_setscheduler, getppid(), 0, &(struct sched_param){ 0 }));
	CHECK_DENIED(ioctl(0, BLKROSET, &(int){ 1 }));
	CHECK(mmap(NULL, PAGE_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	CHECK_EQUAL(errno, EPERM);
	CHECK(pthread_create(&thread, NULL, start_nothing, NULL) != 0);
}

static void check_allowed(int memory)
{
	static const unsigned long commands[] = { BLKDISCARD, BLKRESETZONE, BLKOPENZONE, BLKCLOSEZONE, BLKFINISHZONE };
	char text[] = "abc";
	void *page;

	CHECK_EQUAL(write(memory, text, sizeof(text)), sizeof(text));
	CHECK_EQUAL(pread(memory, text, sizeof(text), 0), sizeof(text));
	page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	CHECK_EQUAL(munmap(page, PAGE_BYTES), 0);
	CHECK_EQUAL(syscall(SYS_tgkill, getpid(), gettid(), 0), 0);
	CHECK_EQUAL(setpriority(PRIO_PROCESS, 0, 19), 0);
	/* The call itself is allowed, and fails because of the file. */
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		errno = 0;
		CHECK_EQUAL(ioctl(memory, commands[i], (uint64_t[]){ 0, 512 }), -1);
		CHECK_EQUAL(errno, ENOTTY);
	}
}

static void *sleep_until_canceled(void *argument)
{
	confine_thread(OTHER_THREAD);
	sleep(60);
	return argument;
}

int main(void)
{
	int memory = memfd_create("memory", MFD_CLOEXEC);
	pthread_t thread;
	void *result;

	CHECK_EQUAL(confine_process(false), 0);
	CHECK_EQUAL(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	CHECK(geteuid() != 0);
	CHECK_EQUAL(pthread_create(&thread, NULL, sleep_until_canceled, NULL), 0);
	confine_thread(ISSUING_THREAD);
	if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != -1 || errno != EPERM)
		return SKIPPED; /* a kernel without filters would answer */
	check_denied();
	check_allowed(memory);
	CHECK_EQUAL(pthread_cancel(thread), 0);
	CHECK_EQUAL(pthread_join(thread, &result), 0);
	CHECK(result == PTHREAD_CANCELED);
	return 0;
}
