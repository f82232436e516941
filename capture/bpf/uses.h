/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * When a thread first uses what a read brought into the page cache.
 *
 * Read-ahead that is there in time shows in no wake-up: on a slower drive the thread would wait for it. So each read of
 * the page cache leaves a note for each chunk of its pages, and the first access to one of them, which the tracepoints
 * of filemap report (since 6.12), becomes a record. All other accesses find no note, and are dropped at once.
 *
 * A fault is reported before it reads further ahead, and would make that wait: its end counts, or where the kernel lets
 * no program be attached there, the mapping after it.
 *
 * A fault also maps the pages around its own that are there, but not the marker of the next window: on a slower drive
 * they are not there yet, and nothing waits for them. So if the thread faults on pages of a chunk that it had mapped so,
 * it uses them only then.
 */
#pragma once

#include "emit.h"
#include "issuer.h"
#include "maps.h"
#include "request.h"
#include "causes/works.h"

#define PAGE_BITS 12
#define CHUNK_BITS 2 /* a chunk is so many pages as the smallest window of read-ahead */
#define MAX_NOTED_CHUNKS 65 /* of a bio: 1 MiB that need not begin with a chunk */
#define MAX_NOTED_BIOS 8 /* of a request */
#define USED_BITS 12
#define VM_FAULT_LOCKED 0x200
#define VM_FAULT_RETRY 0x400
#define FILE_BITS 12

enum { USE_BY_READ, USE_BY_MAPPING, USE_BY_FAULT };

/* The read that brought the pages of a chunk, and the pages of the file that it read. mapping 0: none. */
struct page_note {
	__u64 mapping;
	__u64 first;
	__u64 last;
	__u64 submit_ns;
	__u32 slot;
	__u32 file; /* index of the file in noted_files */
	__u32 mapped_by; /* the thread that mapped pages of the chunk; 0: none */
	__u32 pad[5]; /* a cache line */
};

/* By mapping and chunk. A chunk with the place of another evicts it: the use of that one stays unknown. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* PAGE_NOTES where uses are recorded */
	__type(key, __u32);
	__type(value, struct page_note);
} page_notes SEC(".maps");

/* The last reads whose first use was recorded, by their submit_ns: their other chunks add nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << USED_BITS);
	__type(key, __u32);
	__type(value, __u64);
} used_reads SEC(".maps");

/* How many chunks of the files with this hash have a note: most accesses are to files without any. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << FILE_BITS);
	__type(key, __u32);
	__type(value, __s32);
} noted_files SEC(".maps");

static __always_inline __u32 hash_bits(__u64 value, __u32 bits)
{
	return value * 0x9e3779b97f4a7c15ull >> (64 - bits);
}

static __always_inline struct page_note *note_at(__u64 mapping, __u64 chunk)
{
	__u32 index = hash_bits((mapping >> 3) + chunk * 0xff51afd7ed558ccdull, PAGE_NOTE_BITS);

	return bpf_map_lookup_elem(&page_notes, &index);
}

/* The file and the index in it of the first page of a bio; false if that is not in the page cache. */
static __always_inline bool first_page_of(struct bio *bio, __u64 *mapping, __u64 *first)
{
	__u64 vector = (__u64)READ(bio, bi_io_vec), page, head, offset_bytes;

	if (!vector)
		return false;
	vector += READ(bio, bi_iter.bi_idx) * bpf_core_type_size(struct bio_vec);
	page = (__u64)BPF_CORE_READ((struct bio_vec *)vector, bv_page);
	if (!page)
		return false;
	offset_bytes = BPF_CORE_READ((struct bio_vec *)vector, bv_offset) + READ(bio, bi_iter.bi_bvec_done);
	head = BPF_CORE_READ((struct page *)page, compound_head);
	head = head & 1 ? head - 1 : page;
	*mapping = (__u64)BPF_CORE_READ((struct page *)head, mapping);
	/* The low bits mark anonymous and movable pages. */
	if (!*mapping || *mapping & 3)
		return false;
	*first = BPF_CORE_READ((struct folio *)head, index) + (page - head) / bpf_core_type_size(struct page) +
		 (offset_bytes >> PAGE_BITS);
	return true;
}

static __always_inline void add_notes(__u32 file, __s32 count)
{
	__s32 *noted = bpf_map_lookup_elem(&noted_files, &file);

	if (noted)
		__sync_fetch_and_add(noted, count);
}

/* A global function, which takes numbers: the verifier goes through its loop once, not once for each bio of a request. */
__noinline int note_pages(__u64 mapping, __u64 first, __u64 last, __u64 submit_ns, __u32 slot_index)
{
	__u64 chunk = first >> CHUNK_BITS;
	__u32 file = hash_bits(mapping >> 3, FILE_BITS);

	for (int i = 0; i < MAX_NOTED_CHUNKS && chunk <= last >> CHUNK_BITS; i++, chunk++) {
		struct page_note *note = note_at(mapping, chunk);

		if (!note)
			break;
		if (note->mapping)
			add_notes(note->file, -1);
		add_notes(file, 1);
		note->file = file;
		note->mapping = mapping;
		note->first = first;
		note->last = last;
		note->submit_ns = submit_ns;
		note->slot = slot_index;
		note->mapped_by = 0;
	}
	return 0;
}

static __always_inline bool note_bio(const struct slot *slot, __u32 slot_index, struct bio *bio)
{
	__u32 bytes = READ(bio, bi_iter.bi_size);
	__u64 mapping, first;

	if (READ(bio, bi_flags) & config.pinned_pages)
		return false;
	if (config.end_of_direct_io && (__u64)READ(bio, bi_end_io) == config.end_of_direct_io)
		return false;
	if (!bytes || !first_page_of(bio, &mapping, &first))
		return false;
	note_pages(mapping, first, first + ((bytes - 1) >> PAGE_BITS), slot->submit_ns, slot_index);
	return true;
}

/* A read is issued. */
static __always_inline void expect_use(struct slot *slot, __u32 slot_index, struct request *rq)
{
	struct bio *bio = READ(rq, bio), *last = READ(rq, biotail);

	slot->flags &= ~FLAG_PAGES_NOTED;
	for (int i = 0; i < MAX_NOTED_BIOS && bio; i++) {
		if (note_bio(slot, slot_index, bio))
			slot->flags |= FLAG_PAGES_NOTED;
		if (bio == last)
			break;
		bio = READ(bio, bi_next);
	}
}

static __always_inline void emit_use(const struct page_note *note, int how, bool corrects, __u64 now_ns)
{
	struct issuer user = current_issuer(current_task());
	struct use_record *record;

	if (config.own_only && !(user.flags & FLAG_OWN))
		return;
	record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
	if (!record) {
		COUNT(uses_lost);
		return;
	}
	if (how == USE_BY_MAPPING && !config.sees_faults)
		COUNT(uses_mapped);
	record->kind = RECORD_USE;
	record->corrects = corrects;
	record->tid = user.tid;
	record->submit_ns = note->submit_ns;
	record->used_ns = now_ns;
	record->woken_ns = user.waited_complete_ns;
	record->times = user.times;
	bpf_ringbuf_submit(record, wakeup_flags(now_ns));
}

/* Whether the drive has not completed the read yet. */
static __always_inline bool is_in_flight(const struct page_note *note)
{
	__u32 index = note->slot;
	const struct slot *slot = bpf_map_lookup_elem(&slots, &index);

	return slot && slot->submit_ns == note->submit_ns && slot->state == SLOT_ISSUED;
}

/* Their file by its number: tp_btf programs may not calculate with a pointer to a known type, but with a distance. */
static __always_inline __u64 mapping_at(const __u64 *argument)
{
#ifdef TYPED
	__u64 mapping = *argument;
	struct task_struct *task;

	if (HAS_TASK_BTF) {
		task = bpf_get_current_task_btf();
		asm volatile("%0 -= %1" : "+r"(mapping) : "r"(task));
		return mapping + bpf_get_current_task();
	}
#endif
	return number_at(argument);
}

/*
 * Records the first use of the pages that a read brought to this chunk; false if the use ends here. A global function,
 * which takes numbers: the verifier goes through it once, not once for each path through the chunks before. That would
 * take a second at the start of each capture.
 */
__noinline int use_chunk(__u64 mapping, __u64 chunk, __u64 first, __u64 last, int how)
{
	struct page_note *note = note_at(mapping, chunk);
	__u32 used_index, tid = (__u32)bpf_get_current_pid_tgid();
	bool corrects;
	__u64 *used;

	if (!note || note->mapping != mapping || note->first > last || note->last < first ||
	    chunk < note->first >> CHUNK_BITS || chunk > note->last >> CHUNK_BITS)
		return true;
	if (is_in_flight(note))
		return false;
	corrects = how == USE_BY_FAULT && note->mapped_by == tid;
	if (how == USE_BY_MAPPING && config.sees_faults && !note->mapped_by) {
		note->mapped_by = tid;
	} else if (how != USE_BY_MAPPING || !config.sees_faults) {
		note->mapping = 0;
		add_notes(note->file, -1);
	}
	used_index = hash_bits(note->submit_ns, USED_BITS);
	used = bpf_map_lookup_elem(&used_reads, &used_index);
	if (used && (corrects || *used != note->submit_ns)) {
		*used = note->submit_ns;
		emit_use(note, how, corrects, bpf_ktime_get_ns());
	}
	return true;
}

/* A thread uses these pages, from the first one up to one that is still to come. */
static __always_inline void on_use(__u64 mapping, __u64 first, __u64 last, int how)
{
	__u64 chunk = first >> CHUNK_BITS;
	__u32 file = hash_bits(mapping >> 3, FILE_BITS);
	const __s32 *noted = bpf_map_lookup_elem(&noted_files, &file);

	if (control.phase != PHASE_RUNNING || !noted || *noted <= 0)
		return;
	for (int i = 0; i < MAX_NOTED_CHUNKS && chunk <= last >> CHUNK_BITS; i++, chunk++)
		if (!use_chunk(mapping, chunk, first, last, how))
			break;
}

/* The end of filemap_fault(): the page is there. If the thread has read ahead or waited, it repeats the fault. */
static __always_inline void on_fault(const struct vm_fault *fault, __u64 result)
{
	if (control.phase == PHASE_RUNNING && result & (VM_FAULT_LOCKED | VM_FAULT_RETRY))
		on_use((__u64)BPF_CORE_READ(fault, vma, vm_file, f_mapping), READ(fault, pgoff), READ(fault, pgoff),
		       USE_BY_FAULT);
}
