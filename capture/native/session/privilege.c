/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "privilege.h"

#include <bpf/bpf.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "capabilities.h"

#define CAP_BPF_NUMBER 39 /* headers older than the kernel may lack it */

struct map_read {
	int map_fd;
	void *value;
	bool allowed;
};

static void *read_without_capabilities(void *argument)
{
	struct map_read *attempt = argument;
	uint32_t zero = 0;

	attempt->allowed = !capabilities_limit(0) && !bpf_map_lookup_elem(attempt->map_fd, &zero, attempt->value);
	return NULL;
}

/* Tried in a thread of its own: capabilities belong to a thread. */
static bool maps_are_readable_without_capabilities(int map_fd, void *value)
{
	struct map_read attempt = { .map_fd = map_fd, .value = value };
	pthread_t thread;

	if (pthread_create(&thread, NULL, read_without_capabilities, &attempt))
		return false;
	pthread_join(thread, NULL);
	return attempt.allowed;
}

int privilege_drop(int map_fd, void *value)
{
	return capabilities_leave_root(maps_are_readable_without_capabilities(map_fd, value) ? 0 : 1ull << CAP_BPF_NUMBER);
}
