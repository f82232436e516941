/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Entry into the block layer, in the context of the thread that causes the I/O: later events run in any context. */
#ifndef BLKREEL_ENTRY_H
#define BLKREEL_ENTRY_H

#include "files.h"
#include "maps.h"
#include "request.h"
#include "threads.h"

/* The index of a drive in config.devices, -1: not captured. */
static __always_inline __s32 device_index(__u32 number, bool bio_based)
{
	for (int i = 0; i < MAX_DEVICES; i++) {
		if (i >= config.device_count)
			break;
		if (config.devices[i].number == number && !!config.devices[i].bio_based == bio_based)
			return i;
	}
	return -1;
}

/* Whether the submitting thread waits for this bio. */
static __always_inline bool is_waited_for(struct bio *bio)
{
	struct iomap_dio *direct;
	__u64 end;

	if (!bio)
		return false;
	end = (__u64)READ(bio, bi_end_io);
	if (config.end_of_waited_bio && end == config.end_of_waited_bio)
		return true;
	if (!config.end_of_direct_io || end != config.end_of_direct_io)
		return false;
	direct = BPF_CORE_READ(bio, bi_private);
	return BPF_CORE_READ(direct, wait_for_completion);
}

/* Records the thread, the completion that it waited for, and with files the file. The slot must have op and flags. */
static __always_inline void enter_thread(struct slot *slot, struct bio *bio)
{
	__u64 pid_tid = bpf_get_current_pid_tgid();
	struct thread_entry *thread = current_thread(pid_tid);

	slot->tid = (__s32)pid_tid;
	slot->cpu = bpf_get_smp_processor_id();
	slot->waited_submit_ns = thread ? thread->woken_submit_ns : 0;
	slot->waited_complete_ns = thread ? thread->woken_complete_ns : 0;
	if (slot->waited_complete_ns && thread && thread->inherited)
		slot->flags |= FLAG_INHERITED;
	if (thread) {
		thread->slept_ns = 0; /* it runs */
		if (thread->blocked_ns == BLOCKED_UNKNOWN)
			thread->blocked_ns = thread->blocked_until_ns = 0;
	}
	slot->blocked_ns = thread ? thread->blocked_ns : BLOCKED_UNKNOWN;
	slot->waited_for = is_waited_for(bio);
	if (is_own(thread))
		slot->flags |= FLAG_OWN;
	if (config.files)
		attribute(slot, bio);
	slot->skipped = config.own_only && !(slot->flags & FLAG_OWN);
	slot->used = 1;
}

#endif
