/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/blkzoned.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capabilities.h"
#include "cleanup.h"

#define CAPABILITY(name) (1ull << (name))

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCHITECTURE AUDIT_ARCH_RISCV64
#endif

/* With kernel.io_uring_disabled=1 a ring requires CAP_SYS_ADMIN, until it is made. */
static bool rings_require_admin(void)
{
	FILE *file CLEANUP_FCLOSE = fopen("/proc/sys/kernel/io_uring_disabled", "re");

	return file && fgetc(file) == '1';
}

static void *sleep_until_canceled(void *argument)
{
	pause();
	return argument;
}

/* The first pthread_cancel() of a process loads a library, which a confined thread cannot open. */
static int load_cancellation(void)
{
	pthread_t thread;
	int err = pthread_create(&thread, NULL, sleep_until_canceled, NULL);

	if (err)
		return -err;
	pthread_cancel(thread);
	return -pthread_join(thread, NULL);
}

int confine_process(bool commands)
{
	uint64_t allowed = CAPABILITY(CAP_SYS_NICE) | CAPABILITY(CAP_IPC_LOCK);
	int err = load_cancellation();

	if (err)
		return err;
	if (rings_require_admin() || commands)
		allowed |= CAPABILITY(CAP_SYS_ADMIN);
	return capabilities_leave_root(allowed);
}

#ifdef ARCHITECTURE

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* The low half of an argument; none of these has a high one that the kernel looks at. */
#define LOAD_ARGUMENT(n) LOAD(args[n])
#define SKIP_IF(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), yes, no)
#define SKIP_IF_BITS(bits, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (uint32_t)(bits), yes, no)
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, action)
#define DENY RETURN(SECCOMP_RET_ERRNO | EPERM)
#define ALLOW RETURN(SECCOMP_RET_ALLOW)
#define ALLOW_CALL(number) SKIP_IF(number, 0, 1), ALLOW
/* Then the rest of these five instructions decides. */
#define ALLOW_CALL_WITH(number, n, value) SKIP_IF(number, 0, 4), LOAD_ARGUMENT(n), SKIP_IF(value, 0, 1), ALLOW, DENY
#define ALLOW_CALL_WITHOUT(number, n, bits) SKIP_IF(number, 0, 4), LOAD_ARGUMENT(n), SKIP_IF_BITS(bits, 1, 0), ALLOW, DENY

/*
 * The kernel runs no filter for a system call that is allowed whatever its arguments are (since Linux 5.11), so those of
 * the issuing thread have none. SPEC_ALLOW: before Linux 5.16 a filter would turn off speculation, and slow down the
 * thread.
 */
static void filter_system_calls(void)
{
	struct sock_filter filter[] = {
		LOAD(arch),
		SKIP_IF(ARCHITECTURE, 1, 0),
		DENY,
		LOAD(nr),
		/* I/O and its records */
		ALLOW_CALL(SYS_io_uring_enter),
		ALLOW_CALL(SYS_io_uring_register),
		ALLOW_CALL(SYS_read),
		ALLOW_CALL(SYS_readv),
		ALLOW_CALL(SYS_pread64),
		ALLOW_CALL(SYS_write),
		ALLOW_CALL(SYS_writev),
		ALLOW_CALL(SYS_close),
		SKIP_IF(SYS_ioctl, 0, 8),
		LOAD_ARGUMENT(1),
		SKIP_IF(BLKDISCARD, 5, 0),
		SKIP_IF(BLKRESETZONE, 4, 0),
		SKIP_IF(BLKOPENZONE, 3, 0),
		SKIP_IF(BLKCLOSEZONE, 2, 0),
		SKIP_IF(BLKFINISHZONE, 1, 0),
		DENY,
		ALLOW,
		/* time and statistics */
		ALLOW_CALL(SYS_clock_gettime),
		ALLOW_CALL(SYS_clock_nanosleep),
		ALLOW_CALL(SYS_nanosleep),
		ALLOW_CALL(SYS_restart_syscall),
		ALLOW_CALL(SYS_getrusage),
		ALLOW_CALL(SYS_sysinfo),
		/* the thread's own priority */
		ALLOW_CALL(SYS_sched_yield),
		ALLOW_CALL(SYS_sched_getaffinity),
		ALLOW_CALL_WITH(SYS_sched_setscheduler, 0, 0),
		ALLOW_CALL_WITH(SYS_setpriority, 1, 0),
		/* memory, without new code */
		ALLOW_CALL(SYS_brk),
		ALLOW_CALL(SYS_madvise),
		ALLOW_CALL(SYS_mremap),
		ALLOW_CALL(SYS_munmap),
		ALLOW_CALL_WITHOUT(SYS_mmap, 2, PROT_EXEC),
		ALLOW_CALL_WITHOUT(SYS_mprotect, 2, PROT_EXEC),
		/* threads and signals of this process, and its end */
		ALLOW_CALL(SYS_futex),
		ALLOW_CALL(SYS_getpid),
		ALLOW_CALL(SYS_gettid),
		ALLOW_CALL(SYS_rt_sigaction),
		ALLOW_CALL(SYS_rt_sigprocmask),
		ALLOW_CALL(SYS_rt_sigreturn),
		ALLOW_CALL_WITH(SYS_tgkill, 0, getpid()),
		ALLOW_CALL(SYS_exit),
		ALLOW_CALL(SYS_exit_group),
		DENY,
	};
	const struct sock_fprog program = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

	syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
}

#else

static void filter_system_calls(void)
{
}

#endif

void confine_thread(enum thread_role role)
{
	capabilities_limit(role == ISSUING_THREAD ? CAPABILITY(CAP_SYS_NICE) | CAPABILITY(CAP_IPC_LOCK) : 0);
	filter_system_calls();
}
