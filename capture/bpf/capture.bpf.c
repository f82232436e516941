// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One record per completed request of the captured drives.
 *
 * Compiled twice: with TYPED as tp_btf programs, whose loads from kernel
 * objects are plain instructions, and without as raw_tp programs, which use
 * probe_read and load where the kernel refuses tp_btf. Neither needs kprobes.
 *
 * Times are taken here, because since 6.9 the kernel caches those of a request
 * per plug, so that neighbors share one timestamp.
 */
#include "bios.h"
#include "emit.h"
#include "entry.h"
#include "causes/flushes.h"
#include "causes/inherit.h"
#include "issuer.h"
#include "maps.h"
#include "passthrough.h"
#include "request.h"
#include "uses.h"
#include "causes/waits.h"
#include "causes/works.h"

#ifdef TYPED
#define PROGRAM(name) SEC("tp_btf/" #name)
#else
#define PROGRAM(name) SEC("raw_tp/" #name)
#endif

/* A program of one statement. */
#define HANDLER(tracepoint, name, statement) \
	PROGRAM(tracepoint)                  \
	int name(__u64 *args)                \
	{                                    \
		statement;                   \
		return 0;                    \
	}

char LICENSE[] SEC("license") = "GPL";

/* The slots of a request. */
struct place {
	__s32 device; /* index into config.devices, -1: not captured */
	__u32 op;
	__u32 data_slot;
	__u32 flush_slot;
	bool in_range;
	bool is_path; /* of a multipath head */
};

static __always_inline struct request *request_of(const __u64 *args)
{
	return config.request_is_second ? (struct request *)args[1] : (struct request *)args[0];
}

/* The path of a multipath head that is this disk, NULL: none. */
static __always_inline const volatile struct path_config *path_of(struct gendisk *disk)
{
	__u64 name[DISK_NAME_WORDS] = { 0 };

	bpf_core_read(name, sizeof(name), &disk->disk_name);
	for (int i = 0; i < MAX_DISK_PATHS; i++) {
		const volatile struct path_config *path = &config.paths[i];

		if (i >= config.path_count)
			break;
		if (path->name[0] == name[0] && path->name[1] == name[1] && path->name[2] == name[2] &&
		    path->name[3] == name[3])
			return path;
	}
	return NULL;
}

/* A data request has the slot of its tag. A flush request has its own slot, since it borrows a data request's tag. */
static __always_inline struct place place_of(struct request *rq)
{
	struct place place = { .device = -1 };
	__u32 number, queue, tag;
	struct slot_range range = { 0 };
	const volatile struct path_config *path;
	struct gendisk *disk = disk_of(rq);
	struct blk_mq_hw_ctx *hctx;
	__s32 internal_tag;

	if (!disk)
		return place;
	number = (__u32)READ(disk, major) << 20 | (__u32)READ(disk, first_minor);
	for (int i = 0; i < MAX_DEVICES; i++) {
		if (i >= config.device_count)
			break;
		if (config.devices[i].number != number || config.devices[i].bio_based)
			continue;
		place.device = i;
		range = config.devices[i].range;
		break;
	}
	if (place.device < 0 && config.path_count) {
		path = path_of(disk);
		if (path) {
			place.device = path->device;
			place.is_path = true;
			range = path->range;
		}
	}
	if (place.device < 0)
		return place;
	/* Before the operation, as first_bio(). */
	hctx = READ(rq, mq_hctx);
	queue = READ(hctx, queue_num);
	/* With a scheduler the driver's tag is assigned at dispatch; the scheduler's stays from entry to end. */
	internal_tag = READ(rq, internal_tag);
	tag = internal_tag >= 0 ? internal_tag : READ(rq, tag);
	place.in_range = queue < range.queues && tag < range.depth;
	place.data_slot = range.base + queue * range.depth + tag;
	place.flush_slot = range.flush_base + queue;
	place.op = trace_op_of(READ(rq, cmd_flags));
	if (!place.in_range)
		COUNT(out_of_range);
	return place;
}

static __always_inline struct slot *slot_at(__u32 index)
{
	return bpf_map_lookup_elem(&slots, &index);
}

/* Another request has the slot's tag, so this one has ended without a completion event. */
static __always_inline void emit_unseen(struct slot *slot, __u64 now_ns)
{
	if (emit(slot, 0, now_ns))
		COUNT(reused);
	slot->state = SLOT_IDLE;
}

/* The flags at entry. The flush machinery removes some from the request, but not from its bio. */
static __always_inline __u32 command_of(struct request *rq, struct bio *bio)
{
	__u32 command = READ(rq, cmd_flags);

	return bio && !config.has_io_start ? command | READ(bio, bi_opf) : command;
}

static __always_inline void enter(struct slot *slot, struct request *rq, struct bio *bio, const struct place *place,
				  __u64 start_ns)
{
	slot->request = (__u64)rq;
	slot->start_ns = start_ns;
	slot->op = place->op;
	slot->flags = trace_flags_of(command_of(rq, bio), place->op, priority_class_of(rq, bio));
	slot->flags |= (place->op == OP_COMMAND) * FLAG_PASSTHROUGH;
	slot->flags |= hint_flag_of(bio, place->op);
	slot->device = place->device;
	slot->ends_twice = 0;
	slot->complete_ns = 0;
	enter_thread(slot, bio);
	slot->state = SLOT_STARTED;
}

/* Where the verifier sees a pointer read from an argument, it searches all types of the kernel, and what follows the
 * operation it sees once for each: so this is read before.
 */
static __always_inline struct bio *first_bio(struct request *rq)
{
	struct bio *bio = READ(rq, bio);

	barrier_var(bio); /* else the compiler reads it where it is used */
	return bio;
}

static __always_inline int on_start(struct request *rq, bool from_insert)
{
	struct place place;
	struct slot *slot;
	struct bio *bio;
	__u64 now_ns;

	if (control.phase != PHASE_RUNNING)
		return 0;
	now_ns = bpf_ktime_get_ns();
	bio = first_bio(rq);
	place = place_of(rq);
	if (!place.in_range || place.op == OP_OTHER || place.op == OP_FLUSH)
		return 0;
	slot = slot_at(place.data_slot);
	if (!slot)
		return 0;
	/* A requeued request is inserted again. */
	if (from_insert && slot->state == SLOT_STARTED && slot->request == (__u64)rq)
		return 0;
	if (slot->state == SLOT_ISSUED)
		emit_unseen(slot, now_ns);
	else if (slot->state == SLOT_STARTED)
		COUNT(unissued);
	enter(slot, rq, bio, &place, from_insert ? READ(rq, start_time_ns) : now_ns);
	return 0;
}

PROGRAM(block_io_start)
int io_start(__u64 *args)
{
	return on_start(request_of(args), false);
}

/* Without block_io_start (before 6.5): the insertion into the scheduler, or else the issue. */
PROGRAM(block_rq_insert)
int rq_insert(__u64 *args)
{
	return on_start(request_of(args), true);
}

static __always_inline void issue_flush(struct slot *slot, struct request *rq, struct place place, __u64 now_ns)
{
	struct slot *data = slot_at(place.data_slot);
	struct step last;
	bool known;

	if (!data)
		return;
	last = step_of(slot);
	slot->request = (__u64)rq;
	slot->start_ns = 0;
	slot->flags = trace_flags_of(READ(rq, cmd_flags), OP_FLUSH, 0);
	/* It serves the request whose tag it has, if the entry of that one was seen. */
	known = data->used && config.has_io_start;
	slot->tid = known ? data->tid : -1;
	slot->cpu = known ? data->cpu : -1;
	slot->flags |= known ? data->flags & (FLAG_OWN | FLAG_INHERITED) : 0;
	slot->skipped = config.own_only && !(slot->flags & FLAG_OWN);
	slot->waited_submit_ns = known ? data->waited_submit_ns : 0;
	slot->waited_complete_ns = known ? data->waited_complete_ns : 0;
	slot->times = TIMES_UNKNOWN;
	slot->waited_for = known && data->waited_for;
	if (known)
		flush_waits(slot, data, &last);
	slot->inode = known ? data->inode : NO_INODE;
	slot->cgroup = known ? data->cgroup : 0;
	slot->device = place.device;
	slot->op = OP_FLUSH;
	slot->submit_ns = now_ns;
	slot->sector = 0;
	slot->length_bytes = 0;
	slot->remaining_bytes = 0;
	slot->error = 0;
	slot->complete_ns = 0;
	slot->used = 1;
	slot->state = SLOT_ISSUED;
}

PROGRAM(block_rq_issue)
int rq_issue(__u64 *args)
{
	struct request *rq = request_of(args);
	struct place place;
	struct slot *slot;
	struct bio *bio;
	__u64 now_ns;

	if (control.phase == PHASE_OFF)
		return 0;
	now_ns = bpf_ktime_get_ns();
	bio = first_bio(rq);
	place = place_of(rq);
	if (!place.in_range)
		return 0;
	if (place.op == OP_OTHER) {
		if (control.phase == PHASE_RUNNING)
			COUNT(other_ops);
		return 0;
	}
	slot = slot_at(place.op == OP_FLUSH ? place.flush_slot : place.data_slot);
	if (!slot)
		return 0;
	if (slot->state == SLOT_ISSUED) {
		/* The rest of a request that completed in part. */
		if (slot->request == (__u64)rq && slot->remaining_bytes < slot->length_bytes)
			return 0;
		emit_unseen(slot, now_ns);
	}
	/* An I/O after the capture only ends the one that had its tag. */
	if (control.phase != PHASE_RUNNING)
		return 0;
	if (place.op == OP_FLUSH) {
		issue_flush(slot, rq, place, now_ns);
		return 0;
	}
	if (slot->state != SLOT_STARTED || slot->request != (__u64)rq) {
		enter(slot, rq, bio, &place, config.has_io_start ? 0 : READ(rq, start_time_ns));
		if (config.has_io_start) {
			/* It entered before the capture: this thread may only dispatch it. */
			slot->tid = -1;
			slot->waited_submit_ns = 0;
			slot->waited_complete_ns = 0;
			slot->times = TIMES_UNKNOWN;
			slot->waited_for = 0;
		}
	}
	/* place.op is not used from here on: the verifier would follow the rest once for each of its values. */
	/* A multipath head had it before, and no path, or one that failed. */
	slot->submit_ns = place.is_path && slot->resubmitted && slot->start_ns ? slot->start_ns : now_ns;
	slot->sector = READ(rq, __sector);
	slot->length_bytes = READ(rq, __data_len);
	slot->remaining_bytes = slot->length_bytes;
	slot->error = 0;
	if (slot->flags & FLAG_PASSTHROUGH) {
		slot->state = decode_command(slot, rq) ? SLOT_ISSUED : SLOT_IDLE;
		return 0;
	}
	if (config.files)
		compare_files(slot, rq);
	if (config.uses && slot->op == OP_READ && !(slot->flags & FLAG_METADATA))
		expect_use(slot, place.data_slot, rq);
	if (slot->flags & FLAG_PREFLUSH)
		data_waits(slot, slot_at(place.flush_slot));
	slot->state = SLOT_ISSUED;
	return 0;
}

/* The drive had no room: the request is issued again, and its last issue counts. */
PROGRAM(block_rq_requeue)
int rq_requeue(__u64 *args)
{
	struct request *rq = request_of(args);
	struct place place;
	struct slot *slot;

	if (control.phase == PHASE_OFF)
		return 0;
	place = place_of(rq);
	if (!place.in_range || place.op == OP_OTHER)
		return 0;
	slot = slot_at(place.op == OP_FLUSH ? place.flush_slot : place.data_slot);
	if (!slot || slot->request != (__u64)rq || slot->state != SLOT_ISSUED)
		return 0;
	if (slot->remaining_bytes < slot->length_bytes)
		return 0;
	slot->state = place.op == OP_FLUSH ? SLOT_IDLE : SLOT_STARTED;
	COUNT(requeued);
	return 0;
}

/* Another request takes over the data of this one, which is never issued. */
PROGRAM(block_rq_merge)
int rq_merge(__u64 *args)
{
	struct request *rq = request_of(args);
	struct place place;
	struct slot *slot;

	if (control.phase != PHASE_RUNNING)
		return 0;
	place = place_of(rq);
	if (!place.in_range || place.op == OP_OTHER || place.op == OP_FLUSH)
		return 0;
	slot = slot_at(place.data_slot);
	if (!slot || slot->request != (__u64)rq || slot->state != SLOT_STARTED)
		return 0;
	slot->state = SLOT_IDLE;
	COUNT(merged);
	return 0;
}

static __always_inline void complete_unissued(struct slot *slot, struct request *rq, __u32 done_bytes)
{
	bool ours = slot->request == (__u64)rq && slot->state == SLOT_STARTED;

	if (ours)
		slot->state = SLOT_IDLE;
	if (done_bytes == 0) {
		/* The end of an fsync without data, or the second completion: of a write with flushes around it, or of
		 * a request of dm-multipath, which has no bio then. */
		if (ours || (!config.has_io_start && !slot->ends_twice && READ(rq, bio)))
			COUNT(empty_flushes);
		slot->ends_twice = 0;
	} else if (ours) {
		COUNT(unissued);
	} else if (control.phase == PHASE_RUNNING) {
		if (slot->used)
			COUNT(unmatched);
		else
			COUNT(in_flight_at_start);
	}
	slot->used = 1;
}

/*
 * A path that fails gives the bios of its request back to the head, which submits
 * them to another path, or to this one when it is connected again: there they
 * become the request that is recorded.
 */
static __always_inline bool failed_over(const struct place *place, const struct slot *slot, struct request *rq,
					__u32 done_bytes)
{
	return place->is_path && place->op != OP_FLUSH && place->op != OP_COMMAND && !done_bytes && !READ(rq, bio) &&
	       slot->request == (__u64)rq && slot->state != SLOT_IDLE;
}

PROGRAM(block_rq_complete)
int rq_complete(__u64 *args)
{
	struct request *rq = (struct request *)args[0];
	__s32 error = (__s32)args[1];
	__u32 done_bytes = (__u32)args[2];
	struct place place;
	struct slot *slot;
	__u64 now_ns;

	if (control.phase == PHASE_OFF)
		return 0;
	now_ns = bpf_ktime_get_ns();
	place = place_of(rq);
	if (!place.in_range || place.op == OP_OTHER) {
		forget_completion();
		return 0;
	}
	slot = slot_at(place.op == OP_FLUSH ? place.flush_slot : place.data_slot);
	if (!slot)
		return 0;
	if (failed_over(&place, slot, rq, done_bytes)) {
		slot->state = SLOT_IDLE;
		if (control.phase == PHASE_RUNNING)
			COUNT(failed_over);
		return 0;
	}
	if (slot->request != (__u64)rq || slot->state != SLOT_ISSUED) {
		/* Of a command, it has no row. */
		if (place.op == OP_COMMAND)
			forget_completion();
		else
			complete_unissued(slot, rq, done_bytes);
		return 0;
	}
	if (error && !slot->error)
		slot->error = error;
	if (done_bytes < slot->remaining_bytes) {
		slot->remaining_bytes -= done_bytes;
		return 0;
	}
	slot->remaining_bytes = 0;
	if (slot->op == OP_ZONE_APPEND && !slot->error)
		slot->sector = READ(rq, __sector); /* where the drive has put it */
	emit(slot, now_ns, now_ns);
	note_completion(slot, now_ns, args);
	if (place.op == OP_FLUSH || slot->flags & (FLAG_PREFLUSH | FLAG_FUA))
		slot->complete_ns = now_ns;
	slot->ends_twice = !config.has_io_start && place.op != OP_FLUSH && in_flush_sequence(rq);
	slot->state = SLOT_IDLE;
	return 0;
}

HANDLER(sched_waking, waking, on_waking(args, (struct task_struct *)args[0]))
HANDLER(sched_switch, task_switch, on_switch(args[0], (struct task_struct *)args[1]))
HANDLER(sched_wakeup_new, wakeup_new, on_new_thread(args, (struct task_struct *)args[0]))
HANDLER(workqueue_queue_work, queue_work, on_work_queued(args, number_at(&args[2])))
HANDLER(workqueue_execute_start, execute_work, on_work_started(number_at(&args[0])))

PROGRAM(block_bio_queue)
int bio_queue(__u64 *args)
{
	if (control.phase == PHASE_RUNNING)
		on_bio_queue((struct bio *)(config.bio_is_second ? args[1] : args[0]));
	return 0;
}

PROGRAM(block_bio_complete)
int bio_complete(__u64 *args)
{
	if (control.phase != PHASE_OFF)
		on_bio_complete(args, (struct bio *)args[1]);
	return 0;
}

PROGRAM(block_bio_remap)
int bio_remap(__u64 *args)
{
	if (control.phase != PHASE_RUNNING)
		return 0;
	if (config.bio_is_second)
		on_remap((struct bio *)args[1], (__u32)args[2], args[3]);
	else
		on_remap((struct bio *)args[0], (__u32)args[1], args[2]);
	return 0;
}

/* dm-multipath has requests: the one for the drive has copies of the bios. */
PROGRAM(block_rq_remap)
int rq_remap(__u64 *args)
{
	struct bio *bio;

	if (control.phase != PHASE_RUNNING)
		return 0;
	bio = READ(request_of(args), bio);
	if (!bio)
		return 0;
	if (config.request_is_second)
		on_remap(bio, (__u32)args[2], args[3]);
	else
		on_remap(bio, (__u32)args[1], args[2]);
	return 0;
}

PROGRAM(block_split)
int bio_split(__u64 *args)
{
	if (control.phase != PHASE_RUNNING)
		return 0;
	if (config.bio_is_second)
		on_split((struct bio *)args[1], (__u32)args[2]);
	else
		on_split((struct bio *)args[0], (__u32)args[1]);
	return 0;
}

HANDLER(writeback_dirty_folio, dirty_folio, on_dirty((struct address_space *)args[1]))

/* Its name before 5.18. */
HANDLER(writeback_dirty_page, dirty_page, on_dirty((struct address_space *)args[1]))

/* Lists the processes that the reader sees. */
SEC("iter/task")
int list_processes(__u64 *args)
{
	struct seq_file *output = ((struct bpf_iter_meta *)args[0])->seq;
	struct task_struct *task = (struct task_struct *)args[1], *reader = (struct task_struct *)bpf_get_current_task();
	struct process_numbers numbers;
	const void *places;

	if (!task || READ(task, pid) != READ(task, tgid))
		return 0;
	places = (const void *)READ(task, thread_pid) + bpf_core_field_offset(struct pid, numbers);
	if (bpf_probe_read_kernel(&numbers.own, sizeof(numbers.own), places + bpf_core_type_size(struct upid) *
				  BPF_CORE_READ(reader, thread_pid, level) + bpf_core_field_offset(struct upid, nr)))
		return 0;
	numbers.initial = READ(task, tgid);
	bpf_seq_write(output, &numbers, sizeof(numbers));
	return 0;
}

#define PF_EXITING 4 /* include/linux/sched.h */

/* Adds the children of the workload's processes to these, and lists them. */
SEC("iter/task")
int mark_children(__u64 *args)
{
	struct seq_file *output = ((struct bpf_iter_meta *)args[0])->seq;
	struct task_struct *task = (struct task_struct *)args[1];
	__s32 pid, parent_pid;
	__u8 one = 1;

	/* process_exit() may have seen the end of one that exits. */
	if (!task || READ(task, flags) & PF_EXITING)
		return 0;
	pid = READ(task, tgid);
	parent_pid = BPF_CORE_READ(task, real_parent, tgid);
	if (is_own_process(parent_pid) && !is_own_process(pid) && !bpf_map_update_elem(&own_pids, &pid, &one, BPF_ANY))
		bpf_seq_write(output, &pid, sizeof(pid));
	return 0;
}

HANDLER(mm_filemap_get_pages, use_read, on_use(mapping_at(&args[0]), args[1], args[2], USE_BY_READ))
HANDLER(mm_filemap_map_pages, use_mapped, on_use(mapping_at(&args[0]), args[1], args[2], USE_BY_MAPPING))

PROGRAM(sched_process_fork)
int process_fork(__u64 *args)
{
	struct task_struct *parent = (struct task_struct *)args[0], *child = (struct task_struct *)args[1];
	__s32 pid = READ(child, tgid), parent_pid = READ(parent, tgid);
	__u8 one = 1;

	forget_thread(READ(child, pid));
	if (!bpf_map_lookup_elem(&own_pids, &parent_pid))
		return 0;
	if (pid != parent_pid)
		bpf_map_update_elem(&own_pids, &pid, &one, BPF_ANY);
	count_from_start(READ(child, pid));
	return 0;
}

/* A thread of the workload ends. */
static __always_inline void count_computing(struct task_struct *task)
{
	__u64 computed_ns = READ(task, se.sum_exec_runtime);
	struct cpu_ledger *ledger = own_ledger();

	if (!ledger)
		return;
	ledger->computed_ns += computed_ns;
	if (ledger->longest_computed_ns < computed_ns)
		ledger->longest_computed_ns = computed_ns;
}

PROGRAM(sched_process_exit)
int process_exit(__u64 *args)
{
	struct task_struct *task = (struct task_struct *)args[0];
	struct signal_struct *signal = READ(task, signal);
	__s32 pid = READ(task, tgid);

	if (control.phase == PHASE_RUNNING && is_own_process(pid))
		count_computing(task);
	if (signal && BPF_CORE_READ(signal, live.counter) == 0)
		bpf_map_delete_elem(&own_pids, &pid);
	return 0;
}

#ifdef TYPED
/* blk_throtl_bio before 5.18: programs.c sets the name. */
SEC("fentry/__blk_throtl_bio")
int limit(__u64 *args)
{
	if (control.phase == PHASE_RUNNING)
		on_limit((struct bio *)args[0]);
	return 0;
}

SEC("fexit/filemap_fault")
int use_faulted(__u64 *args)
{
	on_fault((const struct vm_fault *)args[0], args[1]);
	return 0;
}
#endif

#include "synthetic.h"
