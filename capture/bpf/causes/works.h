/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Causes that pass through workqueues, where file systems end much of their I/O.
 * Any worker may run a work item, also without a wake-up, so the cause is stored
 * with the item.
 */
#pragma once

#include "causes/inherit.h"
#include "threads.h"
#include "causes/waits.h"

#define WORK_ENTRIES 4096

struct work_entry {
	__u64 work; /* its address, 0: none */
	__u64 submit_ns;
	__u64 complete_ns;
	__u64 inherited;
};

/* By address; of two that share an entry, the older has no known cause. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WORK_ENTRIES);
	__type(key, __u32);
	__type(value, struct work_entry);
} works SEC(".maps");

/* An argument as a number: tp_btf programs may not calculate with a pointer to a known type. */
static __always_inline __u64 number_at(const __u64 *argument)
{
#ifdef TYPED
	__u64 number = 0;

	bpf_probe_read_kernel(&number, sizeof(number), argument);
	return number;
#else
	return *argument;
#endif
}

static __always_inline struct work_entry *work_at(__u64 work)
{
	/* Fibonacci hashing: addresses differ by multiples of object sizes. */
	__u32 index = (work >> 3) * 0x9e3779b97f4a7c15ull >> 52;

	index &= WORK_ENTRIES - 1;
	return bpf_map_lookup_elem(&works, &index);
}

static __always_inline void on_work_queued(const __u64 *args, __u64 work)
{
	struct task_struct *current = current_task();
	const struct completion_note *note = completion_at_work(args, current, NULL);
	const struct thread_entry *from = note ? NULL : current_cause(current);
	struct work_entry *entry = work_at(work);

	if (!entry)
		return;
	if (note) {
		*entry = (struct work_entry){ work, note->submit_ns, note->complete_ns, 0 };
	} else if (from && is_caused_by_thread(args, current)) {
		*entry = (struct work_entry){ work, from->woken_submit_ns, from->woken_complete_ns, 1 };
	} else if (entry->work == work) {
		entry->work = 0;
	}
}

/* In the worker, whose previous cause ends. */
static __always_inline void on_work_started(__u64 work)
{
	__s32 tid = current_tid(current_task());
	const struct work_entry *entry = work_at(work);
	struct thread_entry *own = thread_at(tid);

	if (!entry || !own)
		return;
	if (entry->work == work) {
		woken_by(own, tid, entry->submit_ns, entry->complete_ns);
		own->inherited = entry->inherited;
	} else if (own->tid == tid) {
		own->woken_complete_ns = 0;
	}
}
