/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Drives without requests (zram, and volumes without their own): the bios are
 * recorded, from the call of the driver to their end. A bio has no tag, so a hash
 * by its address replaces the array of slots.
 */
#pragma once

#include "drive.h"
#include "emit.h"
#include "entry.h"
#include "request.h"
#include "causes/waits.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct slot);
} bios SEC(".maps");

static __always_inline __s32 device_of_bio(struct bio *bio)
{
	return device_index(number_of_disk(bio), true);
}

/* Not on the stack, which has 512 bytes. */
static const struct slot empty = { .state = SLOT_IDLE };

static __always_inline void on_bio_queue(struct bio *bio)
{
	__u64 key = (__u64)bio, now_ns;
	struct slot *slot;
	__u32 command, index;
	__s32 device = device_of_bio(bio);

	if (device < 0) {
		if (config.volumes && is_of_volume(bio))
			enter_volume(bio, READ(bio, bi_iter.bi_sector));
		return;
	}
	now_ns = bpf_ktime_get_ns();
	slot = bpf_map_lookup_elem(&bios, &key);
	if (slot) {
		/* Another bio has its address, so it has ended without a completion event. */
		if (emit(slot, 0, now_ns))
			COUNT(reused);
	} else if (bpf_map_update_elem(&bios, &key, &empty, BPF_NOEXIST)) {
		count_lost(now_ns);
		return;
	}
	slot = bpf_map_lookup_elem(&bios, &key);
	if (!slot)
		return;
	command = READ(bio, bi_opf);
	slot->length_bytes = READ(bio, bi_iter.bi_size);
	slot->op = trace_op_of(command);
	if (slot->op == OP_WRITE && !slot->length_bytes)
		slot->op = OP_FLUSH; /* an fsync: a write of 0 bytes with a flush before it */
	slot->request = key;
	slot->sector = slot->op != OP_FLUSH ? READ(bio, bi_iter.bi_sector) : 0;
	slot->device = device;
	slot->start_ns = 0;
	slot->submit_ns = now_ns;
	slot->error = 0;
	slot->flags = trace_flags_of(command, slot->op, class_of(READ(bio, bi_ioprio))) | hint_flag_of(bio, slot->op);
	enter_thread(slot, bio);
	if (config.volumes && is_of_volume(bio))
		note_entry(bio, READ(bio, bi_iter.bi_sector), slot, now_ns);
	/* The flush before a write is an I/O of its own for the counters of dm. */
	index = device;
	if (index < MAX_DEVICES && config.devices[index].is_dm && slot->length_bytes && slot->flags & FLAG_PREFLUSH)
		COUNT(parts);
	slot->state = SLOT_ISSUED;
	if (slot->op == OP_OTHER) {
		COUNT(other_ops);
		bpf_map_delete_elem(&bios, &key);
	}
}

/*
 * A volume splits a bio: its rest begins at a sector of which the kernel states 32 bits. Either the recorded bio is
 * itself submitted again for its rest, or the part is a bio of its own, which completes.
 */
static __always_inline void on_split(struct bio *bio, __u32 low_sector)
{
	__u64 key = (__u64)bio, sector = READ(bio, bi_iter.bi_sector);

	if (config.volumes && is_of_volume(bio))
		enter_volume(bio, sector + (__u32)(low_sector - (__u32)sector));
	if (device_of_bio(bio) >= 0 && bpf_map_lookup_elem(&bios, &key))
		COUNT(parts);
}

/* Whether it was split off a recorded bio, which ends after all its parts. */
static __always_inline bool is_part(struct bio *bio)
{
	for (int i = 0; i < LONGEST_CHAIN; i++) {
		__u64 whole;

		if (!config.end_of_chained_bio || (__u64)BPF_CORE_READ(bio, bi_end_io) != config.end_of_chained_bio)
			break;
		bio = BPF_CORE_READ(bio, bi_private);
		whole = (__u64)bio;
		if (bpf_map_lookup_elem(&bios, &whole))
			return true;
	}
	return false;
}

static __always_inline void on_bio_complete(const __u64 *args, struct bio *bio)
{
	__u64 key = (__u64)bio, now_ns;
	struct slot *slot = bpf_map_lookup_elem(&bios, &key);

	if (!slot) {
		if (device_of_bio(bio) < 0)
			return;
		if (is_part(bio))
			COUNT(parts);
		else if (control.phase == PHASE_RUNNING)
			COUNT(in_flight_at_start);
		return;
	}
	now_ns = bpf_ktime_get_ns();
	slot->error = READ(bio, bi_status);
	if (slot->op == OP_ZONE_APPEND && !slot->error)
		slot->sector = READ(bio, bi_iter.bi_sector); /* where the drive has put it */
	emit(slot, now_ns, now_ns);
	note_completion(slot, now_ns, args);
	bpf_map_delete_elem(&bios, &key);
}
