/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which completion let a thread go on.
 *
 * A completion wakes whoever waits for it right away: in the same interrupt, or
 * the same kernel thread. So each completion leaves a note on its processor, and
 * a wake-up soon after it, in the same context, of a thread that waits for I/O
 * is its doing. A thread that waits for an event of its own (io_uring, libaio)
 * does not look like one that waits for I/O: for it the time is shorter. Of any
 * other wake-up, inherit.h says what it passes on; an unknown cause stays unknown.
 */
#ifndef BLKREEL_WAITS_H
#define BLKREEL_WAITS_H

#include "request.h"
#include "threads.h"

/* The end of a bio of many pages wakes those who wait for each of them, one after the other. */
#define LONGEST_WAKE_OF_IO_WAIT_NS 200000
#define LONGEST_WAKE_OF_ANY_WAIT_NS 20000

/* Stacks are this large at least, and lie apart. */
#define STACK_BYTES 16384

struct completion_note {
	__u64 submit_ns;
	__u64 complete_ns; /* 0: none */
	__u64 task; /* that ran, or was interrupted */
	__u64 stack;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct completion_note);
} completing SEC(".maps");

/*
 * An address on the stack in use: a program's arguments lie there. Interrupts
 * have a stack of their own, so that it tells a thread from an interrupt upon
 * it. (The preemption count would, too, but not every kernel lets a program
 * find it.) 0 before 5.11; then time alone tells them apart.
 */
static __always_inline __u64 stack_in_use(const __u64 *args, __u64 current)
{
	__u64 address = (__u64)args;
	struct task_struct *task;

	if (!HAS_TASK_BTF)
		return 0;
	/* An address may not be looked at, a distance may. */
	task = bpf_get_current_task_btf();
	asm volatile("%0 -= %1" : "+r"(address) : "r"(task));
	return address + current;
}

static __always_inline bool is_same_stack(__u64 one, __u64 other)
{
	return one - other + STACK_BYTES < 2 * STACK_BYTES;
}

static __always_inline void woken_by(struct thread_entry *entry, __s32 tid, __u64 submit_ns, __u64 complete_ns)
{
	if (entry->tid != tid) {
		/* Its name is told at its first I/O. */
		entry->tid = tid;
		entry->own = 0;
		entry->comm[0] = 0;
		entry->comm[1] = 0;
	}
	entry->woken_submit_ns = submit_ns;
	entry->woken_complete_ns = complete_ns;
	entry->inherited = 0;
}

static __always_inline struct completion_note *own_note(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&completing, &zero);
}

/* The slot's request is complete: who is woken next waited for it. */
static __always_inline void note_completion(const struct slot *slot, __u64 complete_ns, const __u64 *args)
{
	struct completion_note *note = own_note();

	if (slot->waited_for) {
		/* A fast drive is done before its thread has gone to sleep, and then nobody wakes it. */
		struct thread_entry *entry = thread_at(slot->tid);

		if (entry && entry->tid == slot->tid)
			woken_by(entry, slot->tid, slot->submit_ns, complete_ns);
	}
	if (!note)
		return;
	note->submit_ns = slot->submit_ns;
	note->complete_ns = complete_ns;
	note->task = bpf_get_current_task();
	note->stack = stack_in_use(args, note->task);
}

/* Something else completed here: who is woken next waited for that. */
static __always_inline void forget_completion(void)
{
	struct completion_note *note = own_note();

	if (note)
		note->complete_ns = 0;
}

/*
 * The completion whose doing is what happens now, on its stack; NULL: none.
 * `woken`: whom it wakes, NULL where it does something else.
 */
static __always_inline const struct completion_note *completion_at_work(const __u64 *args,
									const struct task_struct *woken)
{
	struct completion_note *note = own_note();
	__u64 since_ns, current;

	if (!note || !note->complete_ns)
		return NULL;
	current = bpf_get_current_task();
	if (note->task != current) {
		note->complete_ns = 0;
		return NULL;
	}
	if (!is_same_stack(stack_in_use(args, current), note->stack))
		return NULL;
	since_ns = bpf_ktime_get_ns() - note->complete_ns;
	if (since_ns > LONGEST_WAKE_OF_IO_WAIT_NS) {
		note->complete_ns = 0;
		return NULL;
	}
	if (since_ns > LONGEST_WAKE_OF_ANY_WAIT_NS && !(woken && BPF_CORE_READ_BITFIELD_PROBED(woken, in_iowait)))
		return NULL;
	return note;
}

/* Whether it is; then the thread has its cause. */
static __always_inline bool is_woken_by_completion(const __u64 *args, struct task_struct *woken)
{
	const struct completion_note *note = completion_at_work(args, woken);
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

#endif
