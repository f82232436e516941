/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "privilege.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY 65534
#define CAP_BPF_NUMBER 39 /* headers older than the kernel may lack it */
#define LAST_CAP 63

struct look {
	int map_fd;
	void *value;
	bool allowed;
};

/* Exactly these and no others; without any, what is inheritable goes too. Of this thread only. */
static int set_capabilities(uint64_t wanted)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {
		{ .effective = (uint32_t)wanted, .permitted = (uint32_t)wanted },
		{ .effective = (uint32_t)(wanted >> 32), .permitted = (uint32_t)(wanted >> 32) },
	};

	return syscall(SYS_capset, &header, data) ? -errno : 0;
}

static void *look_without_any(void *argument)
{
	struct look *look = argument;
	uint32_t zero = 0;

	look->allowed = !set_capabilities(0) && !bpf_map_lookup_elem(look->map_fd, &zero, look->value);
	return NULL;
}

/* Tried in a thread of its own: capabilities are a thread's. */
static bool maps_can_be_read_without(int map_fd, void *value)
{
	struct look look = { .map_fd = map_fd, .value = value };
	pthread_t thread;

	if (pthread_create(&thread, NULL, look_without_any, &look))
		return false;
	pthread_join(thread, NULL);
	return look.allowed;
}

/*
 * What needs a capability to be given up comes first. Where that one is
 * missing, as with file capabilities or in a container, it is not needed.
 * The plain system calls, because those of libc would change all threads.
 */
static void give_up_identity(void)
{
	for (int cap = 0; cap <= LAST_CAP; cap++)
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

int privilege_drop(int map_fd, void *value)
{
	uint64_t kept = maps_can_be_read_without(map_fd, value) ? 0 : 1ull << CAP_BPF_NUMBER;
	int err;

	give_up_identity();
	err = set_capabilities(kept);
	if (err)
		return err;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : 0;
}
