/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Causes that pass from thread to thread.
 *
 * A thread that another one wakes could not continue before that one did, which
 * itself waited for a completion. So the woken thread inherits that completion,
 * if it is newer than its own: an fsync waits for the journal's thread, a worker
 * for the thread that queues its work, a shell for its child. A new thread
 * begins with the cause of its parent.
 *
 * - A wake-up by an interrupt (timer, packet, drive) passes nothing on: the
 *   interrupted thread is not its cause.
 * - A worker of a workqueue has the cause of its present work item, which is
 *   that of the thread that queued it (works.h).
 * - ksoftirqd runs the work of interrupts, and passes nothing on.
 * - The release of a lock passes on the holder's cause, also if the holder had
 *   waited before it took the lock, in which case the two are unrelated. The
 *   programs cannot distinguish these cases.
 */
#pragma once

#include "request.h"
#include "threads.h"
#include "causes/waits.h"
#include "causes/wakes.h"

/* Since 5.15. */
#define HAS_TASK_REGISTERS bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)

/* Of x86-64, and of 32-bit programs, in whose numbers the others wake nobody. */
#define SYS_FUTEX 202
#define SYS_FUTEX_WAKE 454
#define SYS_FUTEX_REQUEUE 456
#define SYS_FUTEX_32 240

/* "ksoftirqd/0", its first eight bytes. */
#define KSOFTIRQ 0x717269746f736b73ull
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "names are compared as numbers");

/*
 * Whether the current thread causes the present event, and not an interrupt.
 * Interrupts run on a stack of their own; on x86, one that interrupts user mode
 * begins on the thread's stack, and then the saved registers are not those of a
 * system call. Nor are they in a page fault: wake-ups there are left out.
 */
static __always_inline bool is_caused_by_thread(const __u64 *args, struct task_struct *current)
{
	__u64 below_registers = (__u64)args, name;
	struct pt_regs *registers;

	if (!HAS_TASK_BTF || !HAS_TASK_REGISTERS)
		return false;
	/* They are at the bottom of the thread's stack. */
	registers = (struct pt_regs *)bpf_task_pt_regs(current);
	asm volatile("%0 -= %1" : "+r"(below_registers) : "r"(registers));
	if (-below_registers > STACK_BYTES)
		return false;
	if (READ_CURRENT(current, flags) & PF_KTHREAD) {
		bpf_probe_read_kernel(&name, sizeof(name), __builtin_preserve_access_index(&current->comm));
		return name != KSOFTIRQ;
	}
	return !bpf_core_field_exists(registers->orig_ax) || (long)READ(registers, orig_ax) != -1;
}

/*
 * Whether a thread that the current one wakes waited for what that one has for it (data in a pipe or a socket, the end
 * of a child), and not for a lock, which threads take in another order on another drive. The kernel's own locks are
 * waited for uninterruptibly; a futex may be a lock.
 */
static __always_inline bool hands_over(struct task_struct *current, struct task_struct *woken)
{
	struct pt_regs *registers = (struct pt_regs *)bpf_task_pt_regs(current);
	long call;

	/* The numbers of system calls of other processors are not known here. */
	if (!bpf_core_field_exists(registers->orig_ax) || !(state_of(woken) & TASK_INTERRUPTIBLE))
		return false;
	call = (long)READ(registers, orig_ax);
	return call != SYS_FUTEX && call != SYS_FUTEX_WAKE && call != SYS_FUTEX_REQUEUE && call != SYS_FUTEX_32;
}

/* The entry of the current thread if it has a cause, to be passed on where the thread causes the event. */
static __always_inline const struct thread_entry *current_cause(struct task_struct *current)
{
	__s32 tid = current_tid(current);
	const struct thread_entry *own = thread_at(tid);

	return own && own->tid == tid && own->woken_complete_ns ? own : NULL;
}

static __always_inline void inherit(struct thread_entry *entry, __s32 tid, const struct thread_entry *from)
{
	woken_by(entry, tid, from->woken_submit_ns, from->woken_complete_ns);
	entry->inherited = 1;
}

/* A thread is woken by the current one, unless an interrupt does it. */
static __always_inline void set_cause(const __u64 *args, struct task_struct *current, struct task_struct *woken)
{
	const struct thread_entry *from;
	struct thread_entry *entry;
	__s32 tid;

	from = current_cause(current);
	if (!from)
		return;
	tid = READ(woken, pid);
	entry = thread_at(tid);
	if (!entry || (entry->tid == tid && entry->woken_complete_ns >= from->woken_complete_ns))
		return;
	if (is_caused_by_thread(args, current))
		inherit(entry, tid, from);
}

static __always_inline void on_waking(const __u64 *args, struct task_struct *woken)
{
	struct task_struct *current = current_task();
	__s32 tid = READ(woken, pid);
	struct thread_entry *entry = thread_at(tid);
	__u64 asleep_since_ns;
	bool by_completion;

	/* It has not given way yet, and will run on: what it waits for takes no time from it. */
	if (entry && entry->tid == tid && is_on_processor(woken))
		entry->asleep_since_ns = 0;
	by_completion = is_woken_by_completion(args, current, woken);
	if (!by_completion)
		set_cause(args, current, woken);
	if (!entry || entry->tid != tid)
		return;
	asleep_since_ns = entry->asleep_since_ns;
	entry->woken_by_thread = end_sleep(entry) && !by_completion && is_caused_by_thread(args, current) &&
				 hands_over(current, woken) && note_wake(current, tid, asleep_since_ns);
}

/* A thread begins. */
static __always_inline void on_new_thread(const __u64 *args, struct task_struct *child)
{
	struct task_struct *current = current_task();
	const struct thread_entry *from = current_cause(current);
	__s32 tid = READ(child, pid);
	struct thread_entry *entry = thread_at(tid);

	if (entry && from && entry != from && is_caused_by_thread(args, current))
		inherit(entry, tid, from);
}
