/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "capabilities.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY 65534
#define LAST_CAPABILITY 63

int capabilities_limit(uint64_t allowed)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data))
		return -errno;
	for (int i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(allowed >> 32 * i);
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &header, data) ? -errno : 0;
}

/*
 * Steps that need a capability come before it is dropped; a process without that capability, as with file
 * capabilities or in a container, does not need the step. System calls, because the wrappers of libc change all threads.
 */
static void drop_identity(void)
{
	/* Where the secure bits may not be set, a change of the user would clear the capabilities. */
	prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
	for (int cap = 0; cap <= LAST_CAPABILITY; cap++)
		prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED |
	      SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED, 0, 0, 0);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (geteuid())
		return;
	syscall(SYS_setgroups, 0, NULL);
	syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY);
	syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY);
}

int capabilities_leave_root(uint64_t allowed)
{
	int err;

	drop_identity();
	err = capabilities_limit(allowed);
	if (err)
		return err;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : 0;
}
