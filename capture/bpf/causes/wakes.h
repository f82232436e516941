/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Threads that other threads wake.
 *
 * A program in a pipeline sleeps until there is data, or room for its own: it waits for what another one does, which
 * may cause no I/O at all, so that only its wake-ups tell where it is. The last wake-up of each thread by another one
 * (hands_over()) is noted, and emitted when the woken thread causes an I/O or uses pages: as many records as I/Os,
 * however often threads wake each other. A thread that only passes on a wake-up, as a shell does that waits for a
 * program and then stops a server, is left out: what it computes in between is the woken thread's.
 */
#pragma once

#include "maps.h"
#include "threads.h"

/* By thread, as in `threads`; valid while its woken_by_thread is set. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREAD_ENTRIES);
	__type(key, __u32);
	__type(value, struct wake_record);
} wakes SEC(".maps");

static __always_inline struct wake_record *wake_of(__s32 tid)
{
	__u32 index = (__u32)tid % THREAD_ENTRIES;

	return bpf_map_lookup_elem(&wakes, &index);
}

/* The current thread wakes another one, which is asleep. Returns whether this is noted. */
static __always_inline bool note_wake(struct task_struct *current, __s32 woken_tid, __u64 asleep_since_ns)
{
	__s32 tid = current_tid(current);
	const struct wake_record *before;
	struct thread_entry *thread;
	struct wake_record *note;

	if (READ_CURRENT(current, flags) & PF_KTHREAD || tid == woken_tid)
		return false;
	thread = current_thread(current, tid);
	note = wake_of(woken_tid);
	if (!thread || !note || (config.own && !is_own(thread)))
		return false;
	before = thread->woken_by_thread ? wake_of(tid) : NULL;
	/* What the woken thread did since the earlier wake-up would come between. */
	if (before && before->woken_tid == tid && before->tid != woken_tid && before->at_ns >= asleep_since_ns) {
		*note = *before;
		note->woken_tid = woken_tid;
		return true;
	}
	*note = (struct wake_record){
		.kind = RECORD_WAKE,
		.tid = tid,
		.woken_tid = woken_tid,
		.at_ns = bpf_ktime_get_ns(),
		.woken_ns = thread->woken_complete_ns,
		.times = current_times(thread, current),
	};
	return true;
}

/* The thread does what its wake-up was for. */
static __always_inline void emit_wake(struct thread_entry *thread, bool own)
{
	const struct wake_record *note;
	struct wake_record *record;

	if (!thread || !thread->woken_by_thread)
		return;
	thread->woken_by_thread = 0;
	note = wake_of(thread->tid);
	if (!note || note->woken_tid != thread->tid || (config.own_only && !own))
		return;
	record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
	if (!record) {
		COUNT(wakes_lost);
		return;
	}
	*record = *note;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}
