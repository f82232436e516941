/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The completion that a thread waited for.
 *
 * A completion wakes its waiters at once, in the same interrupt or kernel
 * thread. So each completion leaves a note on its CPU: it is the cause of a
 * wake-up soon after it, in the same context, of a thread that waits for I/O. A
 * thread that waits for an event (io_uring, libaio) is not marked as waiting for
 * I/O: for it the time is shorter. inherit.h handles all other wake-ups; a cause
 * that is not known stays unknown.
 */
#pragma once

#include "request.h"
#include "threads.h"

/* The end of a bio of many pages wakes the waiters of each page, one after the other. */
#define MAX_WAKE_OF_IO_WAIT_NS 200000
#define MAX_WAKE_OF_ANY_WAIT_NS 20000

/* The smallest stack. Stacks do not overlap. */
#define STACK_BYTES 16384

struct completion_note {
	__u64 submit_ns;
	__u64 complete_ns; /* 0: none */
	__u64 task; /* running, or interrupted */
	__u64 stack; /* from the task */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct completion_note);
} completing SEC(".maps");

/*
 * Where the stack in use is, from the current thread: there are the program's
 * arguments. Interrupts have a stack of their own, so that it differs between a
 * thread and an interrupt. (The preemption count would do, but programs cannot
 * read it on every kernel.) 0 before 5.11, where only the time distinguishes them.
 */
static __always_inline __u64 stack_in_use(const __u64 *args, struct task_struct *current)
{
	__u64 address = (__u64)args;

	if (!HAS_TASK_BTF)
		return 0;
	/* The verifier allows no calculation with an address, but a distance. */
	asm volatile("%0 -= %1" : "+r"(address) : "r"(current));
	return address;
}

static __always_inline bool is_same_stack(__u64 one, __u64 other)
{
	return one - other + STACK_BYTES < 2 * STACK_BYTES;
}

/* Adds the time from begin_ns to end_ns to a sum of the thread. Waits for several I/Os at once count once. */
static __always_inline void add_time(struct thread_entry *entry, __u64 *sum_ns, __u64 begin_ns, __u64 end_ns)
{
	if (begin_ns < entry->counted_until_ns)
		begin_ns = entry->counted_until_ns;
	if (*sum_ns == TIME_UNKNOWN || begin_ns >= end_ns)
		return;
	*sum_ns += end_ns - begin_ns;
	entry->counted_until_ns = end_ns;
}

static __always_inline void woken_by(struct thread_entry *entry, __s32 tid, __u64 submit_ns, __u64 complete_ns)
{
	if (entry->tid != tid)
		begin_thread(entry, tid);
	if (entry->asleep_since_ns)
		add_time(entry, &entry->blocked_ns, entry->asleep_since_ns, complete_ns);
	entry->woken_submit_ns = submit_ns;
	entry->woken_complete_ns = complete_ns;
	entry->inherited = 0;
}

/* 0: it can run. */
static __always_inline long state_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return READ(task, __state);
	return READ((struct task_struct___state *)task, state);
}

static __always_inline struct completion_note *own_note(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&completing, &zero);
}

/* The slot's request is complete: the thread that is woken next waited for it. */
static __always_inline void note_completion(const struct slot *slot, __u64 complete_ns, const __u64 *args)
{
	struct completion_note *note = own_note();
	struct task_struct *current = current_task();

	if (slot->waited_for) {
		/* A fast drive completes before the thread sleeps, so that no wake-up follows. */
		struct thread_entry *entry = thread_at(slot->tid);

		if (entry && entry->tid == slot->tid) {
			woken_by(entry, slot->tid, slot->submit_ns, complete_ns);
			add_time(entry, &entry->blocked_ns, slot->submit_ns, complete_ns);
		}
	}
	if (!note)
		return;
	note->submit_ns = slot->submit_ns;
	note->complete_ns = complete_ns;
	note->task = (__u64)current;
	note->stack = stack_in_use(args, current);
}

/* Something else completed: the thread that is woken next waited for that. */
static __always_inline void forget_completion(void)
{
	struct completion_note *note = own_note();

	if (note)
		note->complete_ns = 0;
}

/* The completion that causes the present event, on its stack; NULL: none. woken: the thread of a wake-up, or NULL. */
static __always_inline const struct completion_note *completion_at_work(const __u64 *args, struct task_struct *current,
									const struct task_struct *woken)
{
	struct completion_note *note = own_note();
	__u64 since_ns;

	if (!note || !note->complete_ns)
		return NULL;
	if (note->task != (__u64)current) {
		note->complete_ns = 0;
		return NULL;
	}
	if (!is_same_stack(stack_in_use(args, current), note->stack))
		return NULL;
	since_ns = bpf_ktime_get_ns() - note->complete_ns;
	if (since_ns > MAX_WAKE_OF_IO_WAIT_NS) {
		note->complete_ns = 0;
		return NULL;
	}
	if (since_ns > MAX_WAKE_OF_ANY_WAIT_NS && !(woken && BPF_CORE_READ_BITFIELD_PROBED(woken, in_iowait)))
		return NULL;
	return note;
}

/* If so, sets the cause of the thread. */
static __always_inline bool is_woken_by_completion(const __u64 *args, struct task_struct *current,
						   struct task_struct *woken)
{
	const struct completion_note *note = completion_at_work(args, current, woken);
	struct thread_entry *entry;
	__s32 tid;

	if (!note)
		return false;
	tid = READ(woken, pid);
	entry = thread_at(tid);
	if (entry)
		woken_by(entry, tid, note->submit_ns, note->complete_ns);
	return true;
}

static __always_inline bool is_on_processor(struct task_struct *task)
{
	return bpf_core_field_exists(task->on_cpu) && READ(task, on_cpu);
}

/*
 * A thread falls asleep, or gives way to another one while it can run on. Then no sleep is open: that of a thread which
 * was woken just before it gave way is seen after its end. Who woke it before is the past, even if the kernel hides the
 * next wake-up from the programs.
 */
static __always_inline void on_switch(bool preempted, struct task_struct *task)
{
	__s32 tid = READ(task, pid);
	struct thread_entry *entry = thread_at(tid);

	if (!entry || entry->tid != tid || entry->blocked_ns == TIME_UNKNOWN)
		return;
	if (preempted || !state_of(task)) {
		entry->asleep_since_ns = 0;
		return;
	}
	entry->asleep_since_ns = bpf_ktime_get_ns();
	entry->woken_by_thread = 0;
}

/* A thread is woken: what was not for I/O of its sleep was for something else. Returns whether it slept. */
static __always_inline bool end_sleep(struct thread_entry *entry)
{
	bool slept = entry->asleep_since_ns;

	if (slept)
		add_time(entry, &entry->slept_ns, entry->asleep_since_ns, bpf_ktime_get_ns());
	entry->asleep_since_ns = 0;
	return slept;
}
