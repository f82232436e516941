/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Records into the ring, and counts of those for which it had no room. */
#pragma once

#include "maps.h"

static __always_inline void count_lost(__u64 now_ns)
{
	struct cpu_ledger *own = own_ledger();
	struct lost_interval *interval;
	__u32 last;

	if (!own)
		return;
	own->lost++;
	last = own->interval_count;
	if (last > 0)
		last--;
	/* Masked at the access: older verifiers (6.1) forget a bound from a comparison. */
	last &= MAX_LOST_INTERVALS - 1;
	asm volatile("" : "+r"(last));
	interval = &own->intervals[last & (MAX_LOST_INTERVALS - 1)];
	/* With all intervals in use the last one widens. */
	if (interval->count && now_ns - interval->last_ns > config.interval_gap_ns && last < MAX_LOST_INTERVALS - 1) {
		last++;
		interval = &own->intervals[last & (MAX_LOST_INTERVALS - 1)];
	}
	if (!interval->count)
		interval->first_ns = now_ns;
	interval->last_ns = now_ns;
	interval->count++;
	own->interval_count = last + 1;
}

/*
 * A wake-up per record costs ten times as much as the record. The reader polls
 * every few ms, and is woken only where the ring fills faster. The fill level is
 * in the reader's cache line, so one record in sixteen reads it, chosen by the
 * low bits of the time.
 */
static __always_inline __u64 wakeup_flags(__u64 now_ns)
{
	if (now_ns & 15)
		return BPF_RB_NO_WAKEUP;
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) < config.wakeup_bytes)
		return BPF_RB_NO_WAKEUP;
	return BPF_RB_FORCE_WAKEUP;
}

/*
 * Emits the record of a slot. complete_ns 0: no completion event. Returns false if it becomes no row; it is
 * counted here, and only here.
 */
static __always_inline bool emit(const struct slot *slot, __u64 complete_ns, __u64 now_ns)
{
	struct io_file_record *with_file;
	struct io_record *record;

	if (config.own_only && slot->skipped) {
		COUNT(not_own);
		return false;
	}
	if (config.files) {
		with_file = bpf_ringbuf_reserve(&ring, sizeof(*with_file), 0);
		record = (struct io_record *)with_file;
	} else {
		with_file = NULL;
		record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
	}
	if (!record) {
		count_lost(now_ns);
		return false;
	}
	record->kind = RECORD_IO;
	record->op = slot->op;
	record->error = slot->error;
	record->device = slot->device;
	record->cpu = slot->cpu;
	record->start_ns = slot->start_ns;
	record->submit_ns = slot->submit_ns;
	record->complete_ns = complete_ns;
	record->sector = slot->sector;
	record->length_bytes = slot->length_bytes;
	record->flags = slot->flags;
	record->tid = slot->tid;
	record->pad = 0;
	record->waited_submit_ns = slot->waited_submit_ns;
	record->waited_complete_ns = slot->waited_complete_ns;
	record->times = slot->times;
	if (config.files) {
		with_file->inode = slot->inode;
		with_file->cgroup = slot->cgroup;
	}
	bpf_ringbuf_submit(record, wakeup_flags(now_ns));
	return true;
}
