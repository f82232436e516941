/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Causes that pass from thread to thread.
 *
 * Who slept and is woken by a thread could not have gone on before that thread
 * had come so far, which in turn owes it to the completion that let it go on
 * last. So the woken thread inherits that completion, where it is newer than
 * its own: an fsync waits for the journal's thread, a worker for the one that
 * hands it its work, a shell for its child. A new thread begins with its parent's.
 *
 * What is passed on, and what is not:
 * - Not what an interrupt wakes, be it a timer, a packet or a drive: the thread
 *   that was interrupted has nothing to do with it.
 * - A worker of a workqueue serves whoever comes: its cause is that of the
 *   piece of work at hand, which is that of whoever queued it (works.h).
 * - ksoftirqd runs interrupts' work, and passes nothing on.
 * - A lock handed on passes its holder's cause. Whoever waited for the lock did
 *   wait for that completion, if the holder did so with the lock; if it did so
 *   before, the two only were in step. Nothing here tells the one from the other.
 */
#ifndef BLKREEL_INHERIT_H
#define BLKREEL_INHERIT_H

#include "request.h"
#include "threads.h"
#include "waits.h"

/* Since 5.15. */
#define HAS_TASK_REGISTERS bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)

/* "ksoftirqd/0", its first eight bytes. */
#define KSOFTIRQ 0x717269746f736b73ull
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "names are compared as numbers");

/*
 * Whether the current thread does what is done here, for itself or for whoever
 * called it, rather than an interrupt upon it. Interrupts run on a stack of
 * their own, except that x86 lets one that comes while a program runs (and not
 * the kernel for it) begin on the thread's; then the registers that were saved
 * are not those of a system call. Nor are they for a page fault: what a thread
 * wakes in one is not seen as its doing.
 */
static __always_inline bool is_threads_own_doing(const __u64 *args)
{
	__u64 below_registers = (__u64)args, name;
	struct task_struct *task;
	struct pt_regs *registers;

	if (!HAS_TASK_BTF || !HAS_TASK_REGISTERS)
		return false;
	task = bpf_get_current_task_btf();
	/* They lie at the bottom of the thread's stack. */
	registers = (struct pt_regs *)bpf_task_pt_regs(task);
	asm volatile("%0 -= %1" : "+r"(below_registers) : "r"(registers));
	if (-below_registers > STACK_BYTES)
		return false;
	if (READ(task, flags) & PF_KTHREAD) {
		bpf_probe_read_kernel(&name, sizeof(name), __builtin_preserve_access_index(&task->comm));
		return name != KSOFTIRQ;
	}
	return !bpf_core_field_exists(registers->orig_ax) || (long)READ(registers, orig_ax) != -1;
}

/* The entry of the current thread if it has a cause, to be passed on if what happens is its own doing. */
static __always_inline const struct thread_entry *current_cause(void)
{
	__s32 tid = (__s32)bpf_get_current_pid_tgid();
	const struct thread_entry *own = thread_at(tid);

	return own && own->tid == tid && own->woken_complete_ns ? own : NULL;
}

static __always_inline void inherit(struct thread_entry *entry, __s32 tid, const struct thread_entry *from)
{
	woken_by(entry, tid, from->woken_submit_ns, from->woken_complete_ns);
	entry->inherited = 1;
}

static __always_inline void on_waking(const __u64 *args, struct task_struct *woken)
{
	const struct thread_entry *from;
	struct thread_entry *entry;
	__s32 tid;

	if (is_woken_by_completion(args, woken))
		return;
	from = current_cause();
	if (!from)
		return;
	tid = READ(woken, pid);
	entry = thread_at(tid);
	if (!entry || (entry->tid == tid && entry->woken_complete_ns >= from->woken_complete_ns))
		return;
	if (is_threads_own_doing(args))
		inherit(entry, tid, from);
}

/* A thread begins. */
static __always_inline void on_new_thread(const __u64 *args, struct task_struct *child)
{
	const struct thread_entry *from = current_cause();
	__s32 tid = READ(child, pid);
	struct thread_entry *entry = thread_at(tid);

	if (entry && from && entry != from && is_threads_own_doing(args))
		inherit(entry, tid, from);
}

#endif
