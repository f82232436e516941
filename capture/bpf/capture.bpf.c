// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One record per completed request of the chosen drives.
 *
 * Compiled twice. With TYPED as tp_btf programs, whose loads from kernel
 * objects are plain instructions; without as raw_tp programs, which read by
 * probe_read and load where tp_btf is refused. Neither needs kprobes.
 *
 * Times are taken here and not from the request: its own are cached per plug
 * since 6.9, so that neighbours share one stamp.
 */
#include "kernel.h"
#include "records.h"
#include "request.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#ifdef TYPED
#define PROGRAM(name) SEC("tp_btf/" #name)
#else
#define PROGRAM(name) SEC("raw_tp/" #name)
#endif

#define THREAD_CACHE_ENTRIES 16384

char LICENSE[] SEC("license") = "GPL";

const volatile struct capture_config config SEC(".rodata.config") = {};
struct capture_control control SEC(".data.control") = {};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} ring SEC(".maps");

/* An array and not a hash: a third of its cost, and no entry is ever without room. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_ledger);
} ledger SEC(".maps");

struct cached_thread {
	__s32 tid;
	__u32 pad;
	__u64 comm[2];
};

/* Whose name was told last, by tid modulo the size: a collision only tells a name again. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREAD_CACHE_ENTRIES);
	__type(key, __u32);
	__type(value, struct cached_thread);
} threads SEC(".maps");

/* Where a request stands. */
struct place {
	__s32 device; /* index into config.devices, -1: not ours */
	__u32 op;
	__u32 data_slot;
	__u32 flush_slot;
	bool in_range;
};

static __always_inline struct cpu_ledger *own_ledger(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&ledger, &zero);
}

#define COUNT(what)                                                      \
	do {                                                             \
		struct cpu_ledger *own__ = own_ledger();                 \
		if (own__)                                               \
			__sync_fetch_and_add(&own__->what, 1);           \
	} while (0)

static __always_inline struct request *request_of(const __u64 *args)
{
	return config.request_is_second ? (struct request *)args[1] : (struct request *)args[0];
}

/* The slot of a data request is that of its tag. A flush request borrows a data request's tag: it has its own slot. */
static __always_inline struct place place_of(struct request *rq)
{
	struct place place = { .device = -1 };
	__u32 number, queue, tag, queues = 0, depth = 0;
	struct gendisk *disk = disk_of(rq);
	struct blk_mq_hw_ctx *hctx;
	__s32 internal_tag;

	if (!disk)
		return place;
	number = (__u32)READ(disk, major) << 20 | (__u32)READ(disk, first_minor);
	for (int i = 0; i < MAX_DEVICES; i++) {
		if (i >= config.device_count)
			break;
		if (config.devices[i].number != number)
			continue;
		place.device = i;
		place.data_slot = config.devices[i].slot_base;
		place.flush_slot = config.devices[i].flush_base;
		queues = config.devices[i].queues;
		depth = config.devices[i].depth;
		break;
	}
	if (place.device < 0)
		return place;
	place.op = trace_op_of(READ(rq, cmd_flags));
	hctx = READ(rq, mq_hctx);
	queue = READ(hctx, queue_num);
	/* With a scheduler the driver's tag comes at dispatch only; its own stays from entry to end. */
	internal_tag = READ(rq, internal_tag);
	tag = internal_tag >= 0 ? internal_tag : READ(rq, tag);
	place.in_range = queue < queues && tag < depth;
	place.data_slot += queue * depth + tag;
	place.flush_slot += queue;
	if (!place.in_range)
		COUNT(out_of_range);
	return place;
}

static __always_inline struct slot *slot_at(__u32 index)
{
	return bpf_map_lookup_elem(&slots, &index);
}

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
	/* Masked where the verifier can see it: older ones (6.1) forget a bound found by comparison. */
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
 * Waking the reader for each record costs ten times the record. It looks by
 * itself every few ms; only a ring that fills faster calls it. The look at the
 * fill level touches the reader's cache line, so one in sixteen looks; the low
 * bits of the time choose as well as a counter would.
 */
static __always_inline __u64 wakeup_flags(__u64 now_ns)
{
	if (now_ns & 15)
		return BPF_RB_NO_WAKEUP;
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) < config.wakeup_bytes)
		return BPF_RB_NO_WAKEUP;
	return BPF_RB_FORCE_WAKEUP;
}

static __always_inline void emit(const struct slot *slot, __u64 complete_ns, __u64 now_ns)
{
	struct io_record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);

	if (!record) {
		count_lost(now_ns);
		return;
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
	bpf_ringbuf_submit(record, wakeup_flags(now_ns));
}

/* The slot's tag came again, so its request has ended, unseen. */
static __always_inline void give_up(struct slot *slot, __u64 now_ns)
{
	COUNT(reused);
	emit(slot, 0, now_ns);
	slot->state = SLOT_IDLE;
}

static __always_inline void tell_thread(__s32 tid, __s32 pid)
{
	__u32 index = (__u32)tid % THREAD_CACHE_ENTRIES;
	struct cached_thread *cached = bpf_map_lookup_elem(&threads, &index);
	struct thread_record *record;
	struct task_struct *task, *leader;
	__u64 comm[2] = {};

	bpf_get_current_comm(comm, sizeof(comm));
	if (!cached || (cached->tid == tid && cached->comm[0] == comm[0] && cached->comm[1] == comm[1]))
		return;
	record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
	if (!record)
		return; /* the name is told at the thread's next I/O */
	cached->tid = tid;
	cached->comm[0] = comm[0];
	cached->comm[1] = comm[1];
	record->kind = RECORD_THREAD;
	record->tid = tid;
	record->pid = pid;
	__builtin_memcpy(record->comm, comm, sizeof(comm));
	task = (struct task_struct *)bpf_get_current_task();
	leader = BPF_CORE_READ(task, group_leader);
	bpf_probe_read_kernel(record->process, sizeof(record->process), __builtin_preserve_access_index(&leader->comm));
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* The flags as they were at entry. The flush machinery strips some from the request, never from its bio. */
static __always_inline __u32 command_of(struct request *rq)
{
	__u32 command = READ(rq, cmd_flags);
	struct bio *bio;

	if (config.has_io_start)
		return command;
	bio = READ(rq, bio);
	return bio ? command | READ(bio, bi_opf) : command;
}

/* The moment of entry, in the context of whoever causes the I/O: later events run anywhere. */
static __always_inline void enter(struct slot *slot, struct request *rq, const struct place *place, __u64 start_ns)
{
	__u64 pid_tid = bpf_get_current_pid_tgid();

	slot->request = (__u64)rq;
	slot->start_ns = start_ns;
	slot->flags = trace_flags_of(command_of(rq), place->op, priority_class_of(rq));
	slot->tid = (__s32)pid_tid;
	slot->cpu = bpf_get_smp_processor_id();
	slot->device = place->device;
	slot->state = SLOT_STARTED;
	slot->ends_twice = 0;
	slot->used = 1;
	tell_thread(slot->tid, pid_tid >> 32);
}

static __always_inline int on_start(struct request *rq, bool from_insert)
{
	struct place place;
	struct slot *slot;
	__u64 now_ns;

	if (control.phase != PHASE_RUNNING)
		return 0;
	now_ns = bpf_ktime_get_ns();
	place = place_of(rq);
	if (!place.in_range || place.op == OP_OTHER || place.op == OP_FLUSH)
		return 0;
	slot = slot_at(place.data_slot);
	if (!slot)
		return 0;
	/* A requeued request is inserted once more. */
	if (from_insert && slot->state == SLOT_STARTED && slot->request == (__u64)rq)
		return 0;
	if (slot->state == SLOT_ISSUED)
		give_up(slot, now_ns);
	else if (slot->state == SLOT_STARTED)
		COUNT(unissued);
	enter(slot, rq, &place, from_insert ? READ(rq, start_time_ns) : now_ns);
	return 0;
}

PROGRAM(block_io_start)
int io_start(__u64 *args)
{
	return on_start(request_of(args), false);
}

/* Where block_io_start does not exist (before 6.5): the insertion into the scheduler, or else the issue. */
PROGRAM(block_rq_insert)
int rq_insert(__u64 *args)
{
	return on_start(request_of(args), true);
}

static __always_inline void issue_flush(struct request *rq, struct place place, __u64 now_ns)
{
	struct slot *slot = slot_at(place.flush_slot);
	struct slot *data = slot_at(place.data_slot);

	if (!slot || !data)
		return;
	if (slot->state == SLOT_ISSUED)
		give_up(slot, now_ns);
	slot->request = (__u64)rq;
	slot->start_ns = 0;
	slot->flags = trace_flags_of(READ(rq, cmd_flags), OP_FLUSH, 0);
	/* It runs for the request whose tag it carries, where that one's entry was seen. */
	slot->tid = data->used && config.has_io_start ? data->tid : -1;
	slot->cpu = data->used && config.has_io_start ? data->cpu : -1;
	slot->device = place.device;
	slot->op = OP_FLUSH;
	slot->submit_ns = now_ns;
	slot->sector = 0;
	slot->length_bytes = 0;
	slot->remaining_bytes = 0;
	slot->error = 0;
	slot->used = 1;
	slot->state = SLOT_ISSUED;
}

PROGRAM(block_rq_issue)
int rq_issue(__u64 *args)
{
	struct request *rq = request_of(args);
	struct place place;
	struct slot *slot;
	__u64 now_ns;

	if (control.phase != PHASE_RUNNING)
		return 0;
	now_ns = bpf_ktime_get_ns();
	place = place_of(rq);
	if (!place.in_range)
		return 0;
	if (place.op == OP_OTHER) {
		COUNT(other_ops);
		return 0;
	}
	if (place.op == OP_FLUSH) {
		issue_flush(rq, place, now_ns);
		return 0;
	}
	slot = slot_at(place.data_slot);
	if (!slot)
		return 0;
	if (slot->state == SLOT_ISSUED) {
		/* The rest of a request that completed in part. */
		if (slot->request == (__u64)rq && slot->remaining_bytes < slot->length_bytes)
			return 0;
		give_up(slot, now_ns);
	}
	if (slot->state != SLOT_STARTED || slot->request != (__u64)rq) {
		enter(slot, rq, &place, config.has_io_start ? 0 : READ(rq, start_time_ns));
		if (config.has_io_start)
			slot->tid = -1; /* entered before the capture began: who runs here may only dispatch it */
	}
	slot->op = place.op;
	slot->submit_ns = now_ns;
	slot->sector = READ(rq, __sector);
	slot->length_bytes = READ(rq, __data_len);
	slot->remaining_bytes = slot->length_bytes;
	slot->error = 0;
	slot->state = SLOT_ISSUED;
	return 0;
}

/* The drive had no room: it is issued again, and only that last issue is what the drive saw. */
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

/* This request's data went into a neighbour, and it is gone without issue. */
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
		/* An fsync without data ends so, and a write with flushes around it says once more that it is done. */
		if (ours || (!config.has_io_start && !slot->ends_twice))
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
	if (!place.in_range || place.op == OP_OTHER)
		return 0;
	slot = slot_at(place.op == OP_FLUSH ? place.flush_slot : place.data_slot);
	if (!slot)
		return 0;
	if (slot->request != (__u64)rq || slot->state != SLOT_ISSUED) {
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
	emit(slot, now_ns, now_ns);
	slot->ends_twice = !config.has_io_start && place.op != OP_FLUSH && in_flush_sequence(rq);
	slot->state = SLOT_IDLE;
	return 0;
}
