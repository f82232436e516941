/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "issue_times.h"
#include "issue_times.skel.h"

#include <bpf/libbpf.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "delay.h"

static int take(void *delay, void *noted, size_t bytes)
{
	(void)bytes;
	delay_noted(delay, noted);
	return 0;
}

static void take_all(void *ring)
{
	ring_buffer__consume(ring);
}

void issue_times_begin(struct issue_times *times, struct delay *delay)
{
	libbpf_set_print(NULL); /* a kernel without it is no error */
	times->programs = issue_times_bpf__open_and_load();
	if (!times->programs)
		return;
	times->ring = ring_buffer__new(bpf_map__fd(times->programs->maps.noted), take, delay, NULL);
	if (!times->ring || issue_times_bpf__attach(times->programs)) {
		issue_times_end(times);
		return;
	}
	delay_set_noted(delay, take_all, times->ring);
}

void issue_times_of(struct issue_times *times, const char *node)
{
	struct stat status;

	if (times->programs && !stat(node, &status))
		times->programs->bss->device = major(status.st_rdev) << 20 | minor(status.st_rdev);
}

void issue_times_end(struct issue_times *times)
{
	ring_buffer__free(times->ring);
	issue_times_bpf__destroy(times->programs);
	*times = (struct issue_times){ 0 };
}
