/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "issue_times.h"
#include "issue_times.skel.h"

#include <bpf/libbpf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "run/clock.h"

#define SECTOR_BYTES 512
/* A request that never reached the server in this form, such as one that was split, leaves its slot. */
#define LONGEST_WAY_NS (10 * NS_PER_S)
#define SLOTS_BYTES (sizeof(struct issue_slot) << ISSUE_SLOT_BITS)

void issue_times_begin(struct issue_times *times)
{
	void *slots;

	libbpf_set_print(NULL); /* a kernel without it is no error */
	times->programs = issue_times_bpf__open_and_load();
	if (!times->programs)
		return;
	slots = mmap(NULL, SLOTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(times->programs->maps.slots), 0);
	if (slots == MAP_FAILED || issue_times_bpf__attach(times->programs)) {
		issue_times_end(times);
		return;
	}
	times->slots = slots;
}

void issue_times_of(struct issue_times *times, const char *node)
{
	struct stat status;

	if (times->programs && !stat(node, &status))
		times->programs->bss->device = major(status.st_rdev) << 20 | minor(status.st_rdev);
}

void issue_times_end(struct issue_times *times)
{
	issue_times_bpf__destroy(times->programs);
	times->programs = NULL;
}

int64_t issue_time(const struct issue_times *times, int64_t offset_bytes, int64_t arrived_ns)
{
	uint64_t sector = (uint64_t)offset_bytes / SECTOR_BYTES;
	struct issue_slot *slot;
	int64_t issued_ns;

	if (!times->slots)
		return arrived_ns;
	slot = times->slots + issue_slot_of(sector);
	if (__atomic_load_n(&slot->sector_after, __ATOMIC_ACQUIRE) != sector + 1)
		return arrived_ns;
	issued_ns = (int64_t)slot->issued_ns;
	__atomic_store_n(&slot->sector_after, 0, __ATOMIC_RELAXED);
	return issued_ns <= arrived_ns && arrived_ns - issued_ns < LONGEST_WAY_NS ? issued_ns : arrived_ns;
}
