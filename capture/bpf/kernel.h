/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The few kernel types that the programs read, with the fields they read. The
 * loader finds each field by name in the running kernel's BTF, so neither
 * order nor size matter here, and neither the build host's kernel nor a
 * generated vmlinux.h is needed. A suffix behind ___ names an older shape.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

typedef __u64 sector_t;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct request_queue {
	struct gendisk *disk; /* since 5.17 */
	const void *mq_ops;   /* NULL: it has bios only */
};

struct gendisk {
	int major;
	int first_minor;
	char disk_name[32];
	struct request_queue *queue;
};

struct block_device {
	struct gendisk *bd_disk;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
};

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	__u32 i_generation;
	struct hlist_head i_dentry;
};

struct qstr {
	const unsigned char *name;
};

union dentry_links {
	struct hlist_node d_alias;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	union dentry_links d_u;
};

struct address_space {
	struct inode *host;
};

struct page {
	unsigned long compound_head;
	struct address_space *mapping;
};

struct folio {
	unsigned long index;
};

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_offset;
};

struct file {
	struct inode *f_inode;
	struct address_space *f_mapping;
};

struct vm_area_struct {
	struct file *vm_file;
};

struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
};

struct kiocb {
	struct file *ki_filp;
};

struct iomap_dio {
	struct kiocb *iocb;
	bool wait_for_completion;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
	struct blkcg_gq *parent;
};

struct bvec_iter {
	sector_t bi_sector;
	unsigned int bi_size;
	unsigned int bi_idx;
	unsigned int bi_bvec_done;
};

struct blk_mq_hw_ctx {
	unsigned int queue_num;
};

/* One byte, as the kernel's. Its values are those of the system call. */
enum __attribute__((packed)) rw_hint {
	WRITE_LIFE_NOT_SET,
};

struct bio {
	struct block_device *bi_bdev; /* since 5.12 */
	unsigned int bi_opf;
	unsigned short bi_flags;
	unsigned short bi_ioprio;
	enum rw_hint bi_write_hint; /* since 6.9 */
	__u8 bi_status;
	struct bvec_iter bi_iter;
	void *bi_end_io;
	void *bi_private;
	struct bio *bi_next;
	struct blkcg_gq *bi_blkg;
	struct bio_vec *bi_io_vec;
};

struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	unsigned int cmd_flags;
	unsigned int rq_flags;
	int tag;
	int internal_tag;
	unsigned int __data_len;
	sector_t __sector;
	struct bio *bio;
	struct bio *biotail;
	__u64 start_time_ns;
};

struct request___rq_disk {
	struct gendisk *rq_disk; /* to 5.16 */
};

struct request___ioprio {
	unsigned short ioprio; /* moved to the bio in 6.14 */
};

struct signal_struct {
	struct {
		int counter;
	} live;
};

struct upid {
	int nr;
};

/* The numbers of a process or thread, from the initial PID namespace to its own. */
struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct sched_info {
	unsigned long long run_delay;
};

struct sched_entity {
	unsigned long long sum_exec_runtime;
};

struct task_struct {
	struct task_struct *group_leader, *real_parent;
	struct pid *thread_pid;
	struct signal_struct *signal;
	unsigned int __state;
	unsigned int flags;
	int pid;
	int tgid;
	int on_cpu; /* on kernels for several processors */
	unsigned int in_iowait : 1;
	struct sched_info sched_info;
	struct sched_entity se;
	unsigned long nvcsw;
	unsigned long nivcsw;
	char comm[16];
};

/* Before 5.14. */
struct task_struct___state {
	long state;
};

struct pt_regs {
	unsigned long orig_ax; /* on x86: the system call, -1 for anything else that left the program */
};

#pragma clang attribute pop

/* Macros, unknown to BTF: include/linux/sched.h. */
#define PF_KTHREAD 0x00200000
#define TASK_INTERRUPTIBLE 1

/* Before 6.11 the flags were macros, unknown to BTF. */
#define RQF_FLUSH_SEQ_BEFORE_ENUM 4
enum rqf_flags {
	__RQF_FLUSH_SEQ = 1,
};

/* Values are the running kernel's: the numbers written here are not used. */
enum req_flag_bits {
	__REQ_SYNC = 1,
	__REQ_META,
	__REQ_IDLE,
	__REQ_FUA,
	__REQ_PREFLUSH,
	__REQ_RAHEAD,
	__REQ_BACKGROUND,
	__REQ_NOUNMAP,
	__REQ_ATOMIC, /* since 6.11 */
};

enum req_op {
	REQ_OP_READ = 1,
	REQ_OP_WRITE,
	REQ_OP_FLUSH,
	REQ_OP_DISCARD,
	REQ_OP_WRITE_ZEROES,
	REQ_OP_DRV_IN,
	REQ_OP_DRV_OUT,
	REQ_OP_ZONE_APPEND,
	REQ_OP_ZONE_RESET,
	REQ_OP_ZONE_RESET_ALL,
	REQ_OP_ZONE_OPEN,
	REQ_OP_ZONE_CLOSE,
	REQ_OP_ZONE_FINISH,
};

/* The name of the same before 6.0. */
enum req_opf {
	REQ_OP_READ___opf = 1,
	REQ_OP_WRITE___opf,
	REQ_OP_FLUSH___opf,
	REQ_OP_DISCARD___opf,
	REQ_OP_WRITE_ZEROES___opf,
	REQ_OP_DRV_IN___opf,
	REQ_OP_DRV_OUT___opf,
	REQ_OP_ZONE_APPEND___opf,
	REQ_OP_ZONE_RESET___opf,
	REQ_OP_ZONE_RESET_ALL___opf,
	REQ_OP_ZONE_OPEN___opf,
	REQ_OP_ZONE_CLOSE___opf,
	REQ_OP_ZONE_FINISH___opf,
};
