/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The file of a bio's data, its path, the cgroup that is charged for it, and for
 * writeback the thread that wrote the data.
 *
 * Kernel pointers are followed by probe_read, which fails for an invalid one;
 * the result is then unknown.
 */
#pragma once

#include "request.h"
#include "threads.h"

#define FILE_ENTRIES 16384
#define FILES_OF_NUMBER 16 /* more share the last id */
#define NUMBER_BITS 48
#define BTRFS_MAGIC 0x9123683e
#define BTRFS_ROOT_NUMBER 256 /* of the directory at the root of each subvolume */
#define BTRFS_TREES_NUMBER 1 /* of the inode whose pages are the metadata */
#define LONGEST_CHAIN 4
#define MAX_COMPARED_BIOS 32 /* of a request */
#define FILE_TYPE_MASK 0170000
#define REGULAR_FILE 0100000

struct file_entry {
	__u64 inode; /* its address, 0: none */
	__u64 number;
	__u64 id; /* in rows */
	__u32 filesystem;
	__u32 generation;
	__u8 emitted;
	/* The last thread that wrote to it; emitted only when that data reaches a captured drive. */
	__u8 is_dirtied;
	__u8 dirtier_is_own;
	__u8 pad;
	struct thread_name dirtier;
};

/* By the address of the inode; two that share an entry evict each other, and are emitted again. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FILE_ENTRIES);
	__type(key, __u32);
	__type(value, struct file_entry);
} files SEC(".maps");

/*
 * By id, which file has it. An inode number is not enough: another file system of the drive, another subvolume of
 * btrfs, and after a deletion a new file have it too.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u64);
} file_ids SEC(".maps");

/* Room for a path, for which the stack is too small. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct file_record);
} file_scratch SEC(".maps");

static __always_inline struct file_entry *file_at(struct inode *inode)
{
	/* Fibonacci hashing: addresses of inodes differ by multiples of the slab object size. */
	__u32 index = ((__u64)inode >> 6) * 0x9e3779b97f4a7c15ull >> 50;

	index &= FILE_ENTRIES - 1;
	return bpf_map_lookup_elem(&files, &index);
}

static __always_inline struct dentry *name_of(struct inode *inode)
{
	struct hlist_node *first = BPF_CORE_READ(inode, i_dentry.first);
	struct dentry *none = NULL;

	if (!first)
		return NULL;
	return (void *)first - __builtin_preserve_field_info(none->d_u.d_alias, BPF_FIELD_BYTE_OFFSET);
}

/*
 * The inode number, or for another file with this number n << NUMBER_BITS more. A global function: the verifier goes
 * through it once, not once for each path that leads to it.
 */
__noinline __u64 id_of(__u64 number, __u64 file)
{
	const __u64 *known;
	__u64 id = number;

	if (number >> NUMBER_BITS)
		return number;
	for (__u64 i = 0; i < FILES_OF_NUMBER; i++) {
		id = number | i << NUMBER_BITS;
		known = bpf_map_lookup_elem(&file_ids, &id);
		if (!known) {
			bpf_map_update_elem(&file_ids, &id, &file, BPF_NOEXIST);
			known = bpf_map_lookup_elem(&file_ids, &id);
		}
		if (!known || *known == file)
			break;
	}
	return id;
}

/*
 * Sets the id of a file, and emits its names up to the root of the file system, or as many as there is room for. A
 * global function, as id_of(), with the address of the inode.
 */
__noinline int emit_file(__u64 address)
{
	struct inode *inode = (struct inode *)address;
	struct file_entry *entry = file_at(inode);
	struct dentry *dentry = name_of(inode), *parent; /* NULL: deleted */
	bool btrfs = BPF_CORE_READ(inode, i_sb, s_magic) == BTRFS_MAGIC;
	struct inode *directory, *subvolume = NULL;
	struct file_record *record;
	__u32 zero = 0, used = 0;
	int parts = 0;

	record = bpf_map_lookup_elem(&file_scratch, &zero);
	if (!record || !entry)
		return 0;
	record->is_cut = 1;
	for (int i = 0; dentry && i <= MAX_PATH_PARTS; i++) {
		const unsigned char *name;
		long length;

		parent = BPF_CORE_READ(dentry, d_parent);
		if (!parent || parent == dentry) {
			record->is_cut = 0;
			break;
		}
		if (used >= MAX_PATH_BYTES || i == MAX_PATH_PARTS)
			break;
		name = BPF_CORE_READ(dentry, d_name.name);
		/* The masks change nothing; they are bounds for the verifier. */
		length = bpf_probe_read_kernel_str(&record->names[used & (MAX_PATH_BYTES - 1)], MAX_NAME_BYTES, name);
		if (length <= 0) {
			parts = 0;
			break;
		}
		used += length & (2 * MAX_NAME_BYTES - 1);
		parts++;
		dentry = parent;
		directory = btrfs && !subvolume ? BPF_CORE_READ(dentry, d_inode) : NULL;
		if (directory && BPF_CORE_READ(directory, i_ino) == BTRFS_ROOT_NUMBER)
			subvolume = directory;
	}
	entry->id = id_of(entry->number, ((__u64)entry->generation << 32 | entry->filesystem) ^ (__u64)subvolume);
	if (!parts)
		return 0;
	record->kind = RECORD_FILE;
	record->parts = parts;
	record->filesystem = entry->filesystem;
	record->inode = entry->id;
	/* All of it: older verifiers accept only a constant length. A file is emitted once. */
	if (!bpf_ringbuf_output(&ring, record, sizeof(*record), BPF_RB_NO_WAKEUP))
		entry->emitted = 1; /* else at its next I/O */
	return 0;
}

static __always_inline bool is_entry_of(const struct file_entry *entry, struct inode *inode, __u64 number,
					__u32 generation)
{
	return entry->inode == (__u64)inode && entry->number == number && entry->generation == generation;
}

static __always_inline struct file_entry *entry_of(struct inode *inode)
{
	struct file_entry *entry = file_at(inode);
	__u64 number = BPF_CORE_READ(inode, i_ino);
	__u32 generation = BPF_CORE_READ(inode, i_generation);

	if (!entry || is_entry_of(entry, inode, number, generation))
		return entry;
	entry->inode = (__u64)inode;
	entry->number = number;
	entry->generation = generation;
	entry->filesystem = BPF_CORE_READ(inode, i_sb, s_dev);
	entry->emitted = 0;
	entry->is_dirtied = 0;
	return entry;
}

/* The metadata of btrfs has an inode with the mode of a regular file on newer kernels (seen on 6.18). */
static __always_inline bool is_regular(struct inode *inode)
{
	if ((BPF_CORE_READ(inode, i_mode) & FILE_TYPE_MASK) != REGULAR_FILE)
		return false;
	return BPF_CORE_READ(inode, i_ino) != BTRFS_TREES_NUMBER || BPF_CORE_READ(inode, i_sb, s_magic) != BTRFS_MAGIC;
}

/* The inode of a bio's first page; NULL if the page is not in the page cache. */
static __always_inline struct inode *inode_of_page(struct bio *bio)
{
	struct page *page = BPF_CORE_READ(bio, bi_io_vec, bv_page);
	__u64 head, mapping;

	if (!page)
		return NULL;
	head = BPF_CORE_READ(page, compound_head);
	if (head & 1)
		page = (struct page *)(head - 1);
	mapping = (__u64)BPF_CORE_READ(page, mapping);
	/* The low bits mark anonymous and movable pages, which have another type of pointer. */
	if (!mapping || mapping & 3)
		return NULL;
	return BPF_CORE_READ((struct address_space *)mapping, host);
}

/* The front of a split bio, and other parts of a chain, point to the whole bio. */
static __always_inline struct bio *whole_bio(struct bio *bio)
{
	for (int i = 0; i < LONGEST_CHAIN; i++) {
		if (!config.end_of_chained_bio || (__u64)BPF_CORE_READ(bio, bi_end_io) != config.end_of_chained_bio)
			break;
		bio = BPF_CORE_READ(bio, bi_private);
	}
	return bio;
}

static __always_inline struct inode *inode_of(struct bio *bio)
{
	struct iomap_dio *direct;

	bio = whole_bio(bio);
	if (config.end_of_direct_io && (__u64)BPF_CORE_READ(bio, bi_end_io) == config.end_of_direct_io) {
		direct = BPF_CORE_READ(bio, bi_private);
		return BPF_CORE_READ(direct, iocb, ki_filp, f_inode);
	}
	/* The program's memory may be a mapped file. */
	return BPF_CORE_READ(bio, bi_flags) & config.pinned_pages ? NULL : inode_of_page(bio);
}

/* The cgroup that is charged: for writeback that of the writer, if the kernel accounts for it; else the thread's. */
static __always_inline __u64 cgroup_of(struct bio *bio)
{
	struct blkcg_gq *group = READ(bio, bi_blkg);

	if (group && READ(group, parent))
		return BPF_CORE_READ(group, blkcg, css.cgroup, kn, id);
	return bpf_get_current_cgroup_id();
}

static __always_inline bool in_kernel_thread(struct task_struct *current)
{
	return READ_CURRENT(current, flags) & PF_KTHREAD;
}

/*
 * Fills in the file and cgroup of the slot's bio. Called at entry; has_issuer: the slot has the thread that
 * submitted the bio, even if a kernel thread runs.
 */
static __always_inline void attribute(struct slot *slot, struct bio *bio, struct task_struct *current,
				      bool has_issuer)
{
	struct thread_entry *thread;
	struct file_entry *entry;
	struct inode *inode;

	/* Of metadata that is not in the page cache, as that of xfs, the request says it. */
	slot->inode = slot->flags & FLAG_METADATA ? 0 : NO_INODE;
	slot->cgroup = 0;
	if (!bio)
		return;
	slot->cgroup = cgroup_of(bio);
	inode = inode_of(bio);
	if (!inode)
		return;
	if (!is_regular(inode)) {
		slot->inode = 0;
		return;
	}
	entry = entry_of(inode);
	if (!entry)
		return;
	if (!entry->emitted)
		emit_file((__u64)inode);
	slot->inode = entry->id;
	if (has_issuer || slot->op != OP_WRITE || !entry->is_dirtied || !in_kernel_thread(current))
		return;
	slot->tid = entry->dirtier.tid;
	slot->flags |= FLAG_DEFERRED;
	slot->flags &= ~FLAG_OWN;
	if (entry->dirtier_is_own)
		slot->flags |= FLAG_OWN;
	thread = thread_at(slot->tid);
	if (thread && !is_emitted(thread, slot->tid, entry->dirtier.comm))
		emit_thread(thread, &entry->dirtier, entry->dirtier_is_own);
}

/* A page of a file became dirty: this thread is the cause of the later writeback. */
static __always_inline void on_dirty(struct address_space *mapping)
{
	struct inode *inode = mapping ? BPF_CORE_READ(mapping, host) : NULL, *typed;
	struct task_struct *current = current_task();
	struct file_entry *entry;

	if (!inode)
		return;
	entry = file_at(inode);
	/* For each page, so by plain loads. The verifier allows them on a pointer as READ returns it, not on `inode`. */
	typed = READ(mapping, host);
	if (entry && typed && entry->is_dirtied && entry->dirtier.tid == current_tid(current) &&
	    is_entry_of(entry, inode, READ(typed, i_ino), READ(typed, i_generation)))
		return;
	if (!is_regular(inode) || in_kernel_thread(current))
		return;
	entry = entry_of(inode);
	if (!entry)
		return;
	current_comm(current, entry->dirtier.comm);
	complete_name(&entry->dirtier, current);
	entry->dirtier_is_own = config.own && (config.own_by_cgroup ? is_in_own_cgroup() :
								      is_own_process(entry->dirtier.pid));
	entry->is_dirtied = 1;
}
