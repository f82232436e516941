/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Operation, flags and priority of a request, in the codes of a trace, on every kernel. */
#pragma once

#include "kernel.h"
#include "records.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* tp_btf programs load from kernel objects by plain instructions; raw_tp programs copy each by a helper. */
#ifdef TYPED
#define READ(object, field) ((object)->field)
#else
#define READ(object, field) BPF_CORE_READ(object, field)
#endif

#define OP_VALUE(op)                                                     \
	(bpf_core_enum_value_exists(enum req_op, op) ?                   \
		 bpf_core_enum_value(enum req_op, op) :                  \
		 bpf_core_enum_value(enum req_opf, op##___opf))

static __always_inline __u32 trace_op_of(__u32 command)
{
	__u32 op = command & 0xff;

	if (op == OP_VALUE(REQ_OP_READ))
		return OP_READ;
	if (op == OP_VALUE(REQ_OP_WRITE))
		return OP_WRITE;
	if (op == OP_VALUE(REQ_OP_FLUSH))
		return OP_FLUSH;
	if (op == OP_VALUE(REQ_OP_DISCARD))
		return OP_DISCARD;
	if (op == OP_VALUE(REQ_OP_WRITE_ZEROES))
		return OP_WRITE_ZEROES;
	if (op == OP_VALUE(REQ_OP_DRV_IN) || op == OP_VALUE(REQ_OP_DRV_OUT))
		return OP_COMMAND;
	if (op == OP_VALUE(REQ_OP_ZONE_APPEND))
		return OP_ZONE_APPEND;
	if (op == OP_VALUE(REQ_OP_ZONE_RESET))
		return OP_ZONE_RESET;
	if (op == OP_VALUE(REQ_OP_ZONE_RESET_ALL))
		return OP_ZONE_RESET_ALL;
	if (op == OP_VALUE(REQ_OP_ZONE_OPEN))
		return OP_ZONE_OPEN;
	if (op == OP_VALUE(REQ_OP_ZONE_CLOSE))
		return OP_ZONE_CLOSE;
	if (op == OP_VALUE(REQ_OP_ZONE_FINISH))
		return OP_ZONE_FINISH;
	return OP_OTHER;
}

#define HAS(command, bit) ((command) >> bpf_core_enum_value(enum req_flag_bits, bit) & 1)

static __always_inline __u32 trace_flags_of(__u32 command, __u32 op, __u32 priority)
{
	__u32 flags = 0;

	if (HAS(command, __REQ_SYNC))
		flags |= FLAG_SYNC;
	if (HAS(command, __REQ_META))
		flags |= FLAG_METADATA;
	if (HAS(command, __REQ_RAHEAD))
		flags |= FLAG_READ_AHEAD;
	if (HAS(command, __REQ_FUA))
		flags |= FLAG_FUA;
	/* Flush requests have it too; only on data it means a flush before the write. */
	if (HAS(command, __REQ_PREFLUSH) && op != OP_FLUSH)
		flags |= FLAG_PREFLUSH;
	if (HAS(command, __REQ_BACKGROUND))
		flags |= FLAG_BACKGROUND;
	if (HAS(command, __REQ_IDLE))
		flags |= FLAG_IDLE;
	if (bpf_core_enum_value_exists(enum req_flag_bits, __REQ_ATOMIC) && HAS(command, __REQ_ATOMIC))
		flags |= FLAG_ATOMIC;
	if (op == OP_WRITE_ZEROES && !HAS(command, __REQ_NOUNMAP))
		flags |= FLAG_MAY_UNMAP;
	if (priority)
		flags |= FLAG_PRIORITY_REALTIME << (priority - 1); /* realtime, best effort, idle: one bit each */
	return flags;
}

/* The kernel merges no writes of different hints, so the first bio has that of the request. A read has its file's. */
static __always_inline __u32 hint_flag_of(struct bio *bio, __u32 op)
{
	__u32 hint;

	if (!bpf_core_field_exists(struct bio, bi_write_hint) || !op_is_write(op) || !bio)
		return 0;
	hint = READ(bio, bi_write_hint);
	return hint && hint <= HINT_COUNT ? FLAG_HINT_NONE << (hint - 1) : 0;
}

static __always_inline struct gendisk *disk_of(struct request *rq)
{
	if (bpf_core_field_exists(struct request_queue, disk)) {
		struct request_queue *queue = READ(rq, q);

		return READ(queue, disk);
	}
	return READ((struct request___rq_disk *)rq, rq_disk);
}

static __always_inline __u8 class_of(__u16 priority)
{
	return priority >> 13 <= 3 ? priority >> 13 : 0;
}

/* bio: the first of the request. */
static __always_inline __u8 priority_class_of(struct request *rq, struct bio *bio)
{
	if (bpf_core_field_exists(struct request___ioprio, ioprio))
		return class_of(READ((struct request___ioprio *)rq, ioprio));
	return bio ? class_of(READ(bio, bi_ioprio)) : 0;
}

/* Whether the flush machinery runs the request: its data is one of several steps. */
static __always_inline bool in_flush_sequence(struct request *rq)
{
	__u32 bit = bpf_core_enum_value_exists(enum rqf_flags, __RQF_FLUSH_SEQ) ?
		    bpf_core_enum_value(enum rqf_flags, __RQF_FLUSH_SEQ) : RQF_FLUSH_SEQ_BEFORE_ENUM;

	return READ(rq, rq_flags) >> bit & 1;
}
