/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Threads: their names, whether they belong to the captured workload, and the completion they waited for last. */
#pragma once

#include "maps.h"

#include <bpf/bpf_core_read.h>

/* Since 5.11. */
#define HAS_TASK_BTF bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf)

#define THREAD_ENTRIES 16384
#define OWN_PIDS 65536

struct thread_entry {
	__s32 tid;
	__u8 own;
	__u8 woken_by_thread; /* last, and has done nothing since: its note (causes/wakes.h) is not emitted yet */
	__u16 inherited; /* it was woken by a thread that had waited for this completion */
	__u64 comm_hash; /* of the name that was emitted; 0: none */
	/* The completion that woke it last; 0: none. */
	__u64 woken_submit_ns;
	__u64 woken_complete_ns;
	/* Since when it sleeps; 0: it does not. */
	__u64 asleep_since_ns;
	/* As in thread_times, TIME_UNKNOWN before its first I/O. What was before counted_until_ns is not added again. */
	__u64 blocked_ns;
	__u64 slept_ns;
	__u64 counted_until_ns;
};
_Static_assert(sizeof(struct thread_entry) == 64, "the size of a cache line");

/*
 * By tid modulo the size, because an array costs a fraction of a hash. Two
 * threads that share an entry evict each other: the name is emitted again, and
 * the completion of the evicted thread is unknown.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREAD_ENTRIES);
	__type(key, __u32);
	__type(value, struct thread_entry);
} threads SEC(".maps");

/* Processes of the workload: the named ones and all their descendants. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OWN_PIDS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __s32);
	__type(value, __u8);
} own_pids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} own_cgroup SEC(".maps");

static __always_inline struct thread_entry *thread_at(__s32 tid)
{
	__u32 index = (__u32)tid % THREAD_ENTRIES;

	return bpf_map_lookup_elem(&threads, &index);
}

/* The names of a thread. */
struct thread_name {
	__s32 tid;
	__s32 pid;
	__u64 cgroup;
	__u64 comm[2];
	__u64 process[2];
};

/*
 * The current thread, which a program asks for once: where the kernel returns by a safe sequence (Retbleed, SRSO), a
 * call costs as much as ten loads.
 */
static __always_inline struct task_struct *current_task(void)
{
	return HAS_TASK_BTF ? bpf_get_current_task_btf() : (struct task_struct *)bpf_get_current_task();
}

/* A field of it, by a plain load where the kernel allows that. */
#ifdef TYPED
#define READ_CURRENT(task, field) (HAS_TASK_BTF ? (task)->field : BPF_CORE_READ(task, field))
#else
#define READ_CURRENT(task, field) BPF_CORE_READ(task, field)
#endif

static __always_inline __s32 current_tid(struct task_struct *current)
{
#ifdef TYPED
	if (HAS_TASK_BTF)
		return current->pid;
#endif
	return (__s32)bpf_get_current_pid_tgid();
}

/* Fills in everything but comm. */
static __always_inline void complete_name(struct thread_name *name, struct task_struct *current)
{
	struct task_struct *leader = BPF_CORE_READ(current, group_leader);

	name->tid = current_tid(current);
	name->pid = bpf_get_current_pid_tgid() >> 32;
	name->cgroup = bpf_get_current_cgroup_id();
	bpf_probe_read_kernel(name->process, sizeof(name->process), __builtin_preserve_access_index(&leader->comm));
}

static __always_inline __u64 hash_of_comm(const __u64 comm[2])
{
	return comm[0] + comm[1] * 0x9e3779b97f4a7c15ull;
}

static __always_inline bool is_emitted(const struct thread_entry *entry, __s32 tid, const __u64 comm[2])
{
	return entry->tid == tid && entry->comm_hash == hash_of_comm(comm);
}

/* The entry is that of another thread, whose name is emitted at its first I/O. */
static __always_inline void begin_thread(struct thread_entry *entry, __s32 tid)
{
	*entry = (struct thread_entry){ .tid = tid, .blocked_ns = TIME_UNKNOWN, .slept_ns = TIME_UNKNOWN };
}

static __always_inline void emit_thread(struct thread_entry *entry, const struct thread_name *name, bool own)
{
	struct thread_record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);

	if (!record)
		return; /* the name follows at the thread's next I/O */
	if (entry->tid != name->tid)
		begin_thread(entry, name->tid);
	entry->comm_hash = hash_of_comm(name->comm);
	entry->own = own;
	record->kind = RECORD_THREAD;
	record->tid = name->tid;
	record->pid = name->pid;
	record->pad32 = 0;
	record->cgroup = name->cgroup;
	__builtin_memcpy(record->comm, name->comm, sizeof(record->comm));
	__builtin_memcpy(record->process, name->process, sizeof(record->process));
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

static __always_inline bool is_own_process(__s32 pid)
{
	return config.own && !config.own_by_cgroup && bpf_map_lookup_elem(&own_pids, &pid);
}

/* bpf_get_current_comm() costs as much as the rest of an entry; a program with types loads the name itself. */
static __always_inline void current_comm(struct task_struct *current, __u64 comm[2])
{
#ifdef TYPED
	if (HAS_TASK_BTF) {
		const __u64 *name = (const void *)current->comm;

		comm[0] = name[0];
		comm[1] = name[1];
		return;
	}
#endif
	bpf_get_current_comm(comm, 2 * sizeof(comm[0]));
}

/* The entry of the current thread. Emits its name if it is new; NULL if the ring had no room for that. */
static __always_inline struct thread_entry *current_thread(struct task_struct *current, __s32 tid)
{
	struct thread_entry *entry = thread_at(tid);
	struct thread_name name;

	if (!entry)
		return NULL;
	current_comm(current, name.comm);
	if (!is_emitted(entry, tid, name.comm)) {
		complete_name(&name, current);
		emit_thread(entry, &name, is_own_process(name.pid));
	}
	return entry->tid == tid ? entry : NULL;
}

static __always_inline bool is_in_own_cgroup(void)
{
	return config.own_by_cgroup && bpf_current_task_under_cgroup(&own_cgroup, 0) == 1;
}

static __always_inline bool is_own(const struct thread_entry *entry)
{
	if (!config.own)
		return false;
	return config.own_by_cgroup ? is_in_own_cgroup() : entry && entry->own;
}

/* The kernel adds a wait when it ends, so the sum stays as it is while the thread runs. */
static __always_inline __u64 current_runnable_ns(struct task_struct *current)
{
	if (!bpf_core_field_exists(current->sched_info.run_delay))
		return TIME_UNKNOWN;
	return READ_CURRENT(current, sched_info.run_delay);
}

/* Of the current thread, whose entry this is, or NULL. They are counted from the first call on. */
static __always_inline struct thread_times current_times(struct thread_entry *thread, struct task_struct *current)
{
	if (thread) {
		thread->asleep_since_ns = 0; /* it runs */
		if (thread->blocked_ns == TIME_UNKNOWN)
			thread->blocked_ns = thread->slept_ns = 0;
	}
	return (struct thread_times){
		.blocked_ns = thread ? thread->blocked_ns : TIME_UNKNOWN,
		.slept_ns = thread ? thread->slept_ns : TIME_UNKNOWN,
		.runnable_ns = current_runnable_ns(current),
	};
}

/* Its sleeps and who ends them, although it may never do I/O: it may wake one that does. */
static __always_inline void count_from_start(__s32 tid)
{
	struct thread_entry *entry = thread_at(tid);

	if (!entry)
		return;
	begin_thread(entry, tid);
	entry->blocked_ns = entry->slept_ns = 0;
}

/* A thread begins or ends: its entry is that of an earlier thread with this number. */
static __always_inline void forget_thread(__s32 tid)
{
	struct thread_entry *entry = thread_at(tid);

	if (entry && entry->tid == tid)
		entry->tid = 0;
}
