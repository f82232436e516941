/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Issuing through io_uring. What the kernel can do is found by trying, best
 * first; what is in use is told in features().
 */
#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "issuer.h"
#include "message.h"
#include "offload.h"

/* From linux/blkdev.h of 6.12 (50c52250e2d7): discards through IORING_OP_URING_CMD. */
#ifndef BLOCK_URING_CMD_DISCARD
#define BLOCK_URING_CMD_DISCARD _IO(0x12, 0)
#endif

/* user_data: the slot, what else the completion is of, and above that the bytes that a transfer is to carry. */
#define OF_PREFLUSH (1ull << 32)
#define OF_OFFLOAD (1ull << 33)
#define CARRIES_SHIFT 34

/* The most completions that one row may have waiting: a piece is more than half of PIECE_MAX_BYTES. */
#define ROW_COMPLETIONS (2 * ROW_WINDOW_BYTES / PIECE_MAX_BYTES)

/* Every row of a batch may need a flush before it, and the offload's event a read of its own. */
#define SQ_ENTRIES 64u

enum { SINK_BUFFER, POOL_BUFFER };

struct uring {
	struct issuer issuer;
	struct io_uring ring;
	const struct target *targets;
	unsigned target_count;
	struct payload *payload;
	struct offload *offload;
	uint64_t offload_events;
	int64_t *handed_bytes; /* of the long row in each slot: what the kernel has got so far */
	unsigned sqe_flags;
	bool fixed_file;
	bool fixed_buffers;
	bool ring_fd;
	bool deferred; /* completions come only when asked for: the flag in the SQ ring says when */
	bool single_issuer;
	bool discard_command;
	char features[256];
};

static struct io_uring_sqe *take_sqe(struct uring *uring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);

	/* A batch finds room always. Pieces of long rows that follow on others may not: what is there goes first. */
	while (!sqe) {
		io_uring_submit(&uring->ring);
		sqe = io_uring_get_sqe(&uring->ring);
	}
	return sqe;
}

/* How the ring knows a target. */
static int fd_of(const struct uring *uring, const struct io *io)
{
	return uring->fixed_file ? io->target : uring->targets[io->target].fd;
}

static unsigned priority_of(const struct uring *uring, const struct io *io)
{
	int32_t flags = io->flags;

	if ((flags & FLAG_PRIORITY_REALTIME) && uring->targets[io->target].realtime_priority)
		return IOPRIO_PRIO_VALUE(IOPRIO_CLASS_RT, 4);
	if (flags & FLAG_PRIORITY_BEST_EFFORT)
		return IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 4);
	if (flags & FLAG_PRIORITY_IDLE)
		return IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0);
	return 0;
}

/* A part of a row, or all of it, from `at` on. */
static void queue_transfer(struct uring *uring, const struct io *io, uint32_t slot, int64_t at, unsigned length_bytes)
{
	struct io_uring_sqe *sqe = take_sqe(uring);
	int64_t offset_bytes = io->offset_bytes + at;
	bool read = io->op == OP_READ;
	void *data = read ? payload_sink(uring->payload, length_bytes) :
			    payload_take(uring->payload, offset_bytes, length_bytes);

	if (uring->fixed_buffers && read)
		io_uring_prep_read_fixed(sqe, fd_of(uring, io), data, length_bytes, offset_bytes, SINK_BUFFER);
	else if (uring->fixed_buffers)
		io_uring_prep_write_fixed(sqe, fd_of(uring, io), data, length_bytes, offset_bytes, POOL_BUFFER);
	else if (read)
		io_uring_prep_read(sqe, fd_of(uring, io), data, length_bytes, offset_bytes);
	else
		io_uring_prep_write(sqe, fd_of(uring, io), data, length_bytes, offset_bytes);
	if (!read && (io->flags & FLAG_FUA))
		sqe->rw_flags = RWF_DSYNC;
	sqe->ioprio = priority_of(uring, io);
	sqe->flags |= uring->sqe_flags;
	sqe->user_data = slot | (uint64_t)length_bytes << CARRIES_SHIFT;
}

static void queue_flush(struct uring *uring, const struct io *io, uint64_t user_data, unsigned flags)
{
	struct io_uring_sqe *sqe = take_sqe(uring);

	/* On a block device nothing is cached by direct I/O, so this is a flush and no more. */
	io_uring_prep_fsync(sqe, fd_of(uring, io), 0);
	sqe->flags |= uring->sqe_flags | flags;
	sqe->user_data = user_data;
}

static bool is_long(const struct io *io)
{
	return (io->op == OP_READ || io->op == OP_WRITE) && io->length_bytes > PIECE_MAX_BYTES;
}

/* Hands on what of a long row is not with the kernel yet, as far as its window reaches. */
static void queue_pieces(struct uring *uring, struct io *io, uint32_t slot)
{
	int64_t piece_bytes = target_piece_bytes(&uring->targets[io->target]);

	while (io->pending < ROW_WINDOW_BYTES / piece_bytes && uring->handed_bytes[slot] < io->length_bytes) {
		int64_t at = uring->handed_bytes[slot], left = io->length_bytes - at;
		int64_t length_bytes = left < piece_bytes ? left : piece_bytes;

		uring->handed_bytes[slot] += length_bytes;
		io->pending++;
		queue_transfer(uring, io, slot, at, length_bytes);
	}
}

/* A read or a write, behind its flush where it has one: the drive gets what it got. */
static void queue_row(struct uring *uring, struct io *io, uint32_t slot)
{
	bool preflush = io->op == OP_WRITE && (io->flags & FLAG_PREFLUSH);

	if (preflush && is_long(io)) {
		/* Pieces have no order among them, so that the flush must be done before the first. */
		uring->handed_bytes[slot] = 0;
		io->pending = 1;
		queue_flush(uring, io, slot | OF_PREFLUSH, 0);
	} else if (is_long(io)) {
		uring->handed_bytes[slot] = 0;
		io->pending = 0;
		queue_pieces(uring, io, slot);
	} else {
		io->pending = 1 + preflush;
		if (preflush)
			queue_flush(uring, io, slot | OF_PREFLUSH, IOSQE_IO_LINK);
		queue_transfer(uring, io, slot, 0, io->length_bytes);
	}
}

static void prepare_discard(struct uring *uring, struct io_uring_sqe *sqe, const struct io *io)
{
	if (!uring->targets[io->target].block_device) {
		io_uring_prep_fallocate(sqe, fd_of(uring, io), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, io->offset_bytes,
					io->length_bytes);
		return;
	}
	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, fd_of(uring, io), (void *)(uintptr_t)io->offset_bytes, 0, 0);
	sqe->cmd_op = BLOCK_URING_CMD_DISCARD;
	sqe->addr3 = io->length_bytes;
	/* By a worker: the kernel tries the submitter without waiting, which zram and other bio-based drives refuse. */
	sqe->flags |= IOSQE_ASYNC;
}

static void uring_queue(struct issuer *issuer, struct io *io, uint32_t slot)
{
	struct uring *uring = (struct uring *)issuer;
	struct io_uring_sqe *sqe;

	io->status = 0;
	io->pending = 1;
	switch (io->op) {
	case OP_READ:
	case OP_WRITE:
		queue_row(uring, io, slot);
		return;
	case OP_FLUSH:
		queue_flush(uring, io, slot, 0);
		return;
	case OP_DISCARD:
		if (uring->offload && uring->targets[io->target].block_device) {
			offload_discard(uring->offload, uring->targets[io->target].fd, slot, io->offset_bytes,
					io->length_bytes);
			return;
		}
		sqe = take_sqe(uring);
		prepare_discard(uring, sqe, io);
		break;
	case OP_WRITE_ZEROES:
		sqe = take_sqe(uring);
		io_uring_prep_fallocate(sqe, fd_of(uring, io), FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, io->offset_bytes,
					io->length_bytes);
		break;
	default:
		assert(!"an op that plan_check lets through");
		return;
	}
	sqe->flags |= uring->sqe_flags;
	sqe->user_data = slot;
}

static int uring_submit(struct issuer *issuer, int64_t wait_ns)
{
	struct uring *uring = (struct uring *)issuer;
	struct __kernel_timespec span = { wait_ns / NS_PER_S, wait_ns % NS_PER_S };
	struct io_uring_cqe *cqe;
	int n;

	do {
		if (wait_ns > 0)
			n = io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1, &span, NULL);
		else if (uring->deferred)
			n = io_uring_submit_and_get_events(&uring->ring);
		else
			n = io_uring_submit(&uring->ring);
		/* EBUSY and EAGAIN: the kernel wants completions taken, or has no memory at the moment. */
		if (n < 0 && n != -EINTR && n != -ETIME && n != -EAGAIN && n != -EBUSY)
			return n;
	} while (n != -EBUSY && n != -EAGAIN && io_uring_sq_ready(&uring->ring));
	return io_uring_sq_ready(&uring->ring) ? -EAGAIN : 0;
}

/* True when the row is done. */
static bool complete_one(struct uring *uring, struct io *io, const struct io_uring_cqe *cqe)
{
	int32_t result = cqe->res;
	int32_t carries = cqe->user_data >> CARRIES_SHIFT;

	/* A short transfer means that the drive has nothing there: the blocks asked for were not carried. */
	if (result >= 0 && carries && result != carries)
		result = -EIO;
	/* A failed flush cancels its write; the flush's error is the cause. */
	if (result < 0 && (io->status == 0 || io->status == -ECANCELED))
		io->status = result;
	io->pending--;
	if (!io->status && is_long(io))
		queue_pieces(uring, io, (uint32_t)cqe->user_data);
	return io->pending == 0;
}

static void watch_offload(struct uring *uring)
{
	struct io_uring_sqe *sqe = take_sqe(uring);

	io_uring_prep_read(sqe, offload_event_fd(uring->offload), &uring->offload_events,
			   sizeof(uring->offload_events), 0);
	sqe->user_data = OF_OFFLOAD;
}

static unsigned reap_offload(struct uring *uring, struct io *ios, uint32_t *slots, unsigned room)
{
	struct offload_result results[REAP_ROWS];
	unsigned count = offload_reap(uring->offload, results, room < REAP_ROWS ? room : REAP_ROWS);

	for (unsigned i = 0; i < count; i++) {
		slots[i] = results[i].slot;
		ios[slots[i]].status = results[i].status;
		ios[slots[i]].pending = 0;
	}
	return count;
}

static unsigned uring_reap(struct issuer *issuer, struct io *ios, uint32_t *slots, unsigned room)
{
	struct uring *uring = (struct uring *)issuer;
	struct io_uring_cqe *cqe;
	unsigned head, seen = 0, count = 0;

	/* Completions wait in the kernel until asked for; the flag says that some do. */
	if (!io_uring_cq_ready(&uring->ring) &&
	    (IO_URING_READ_ONCE(*uring->ring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)))
		io_uring_get_events(&uring->ring);
	io_uring_for_each_cqe(&uring->ring, head, cqe) {
		uint32_t slot = (uint32_t)cqe->user_data;

		if (count == room)
			break;
		seen++;
		if (cqe->user_data == OF_OFFLOAD)
			watch_offload(uring);
		else if (complete_one(uring, &ios[slot], cqe))
			slots[count++] = slot;
	}
	io_uring_cq_advance(&uring->ring, seen);
	/* Pieces that follow on others: nobody else would send them before the next deadline. */
	if (io_uring_sq_ready(&uring->ring))
		io_uring_submit(&uring->ring);
	if (uring->offload && count < room)
		count += reap_offload(uring, ios, slots + count, room - count);
	return count;
}

static const char *uring_features(struct issuer *issuer)
{
	struct uring *uring = (struct uring *)issuer;
	static const char *const words[] = { "false", "true" };

	snprintf(uring->features, sizeof(uring->features),
		 "{\"single_issuer\": %s, \"defer_taskrun\": %s, \"fixed_file\": %s, \"fixed_buffers\": %s, "
		 "\"ring_fd\": %s, \"discard_command\": %s}",
		 words[uring->single_issuer], words[uring->deferred], words[uring->fixed_file],
		 words[uring->fixed_buffers], words[uring->ring_fd], words[uring->discard_command]);
	return uring->features;
}

/*
 * The kernel takes a ring apart some time after its process has ended, and a
 * registered file stays open, and claimed, until then: the next run on this
 * drive would find it in use.
 */
static void uring_release(struct issuer *issuer)
{
	struct uring *uring = (struct uring *)issuer;

	if (uring->fixed_file)
		io_uring_unregister_files(&uring->ring);
}

static int make_ring(struct uring *uring, unsigned depth, bool plain)
{
	static const unsigned ways[] = {
		/* 6.1: completions are handled when we ask, never in the middle of pacing. */
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
			IORING_SETUP_SUBMIT_ALL,
		/* 6.0, 5.19: no interrupt of the issuing thread for a completion. */
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
			IORING_SETUP_SUBMIT_ALL,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
		0,
	};
	size_t count = sizeof(ways) / sizeof(ways[0]);
	int err = -EINVAL;

	for (size_t i = plain ? count - 1 : 0; i < count; i++) {
		struct io_uring_params params = {
			.flags = ways[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
			.cq_entries = ROW_COMPLETIONS * (depth + SQ_ENTRIES),
		};

		err = io_uring_queue_init_params(SQ_ENTRIES, &uring->ring, &params);
		if (!err) {
			uring->deferred = ways[i] & IORING_SETUP_DEFER_TASKRUN;
			uring->single_issuer = ways[i] & IORING_SETUP_SINGLE_ISSUER;
			return params.features & IORING_FEAT_EXT_ARG ? 0 : -EOPNOTSUPP;
		}
		if (err != -EINVAL)
			break;
	}
	return err;
}

static void register_what_may_be(struct uring *uring)
{
	struct payload *payload = uring->payload;
	int fds[MAX_TARGETS];
	struct iovec buffers[] = {
		[SINK_BUFFER] = { payload->sink, payload->sink_bytes },
		[POOL_BUFFER] = { payload->pool, payload->pool_bytes },
	};

	uring->ring_fd = io_uring_register_ring_fd(&uring->ring) == 1;
	for (unsigned i = 0; i < uring->target_count; i++)
		fds[i] = uring->targets[i].fd;
	uring->fixed_file = !io_uring_register_files(&uring->ring, fds, uring->target_count);
	if (uring->fixed_file)
		uring->sqe_flags = IOSQE_FIXED_FILE;
	/* Refused where the limit of locked memory is low: then the kernel maps the pages of each I/O. */
	uring->fixed_buffers = !io_uring_register_buffers(&uring->ring, buffers, payload->pool ? 2 : 1);
}

/*
 * Whether the kernel knows the discard command: one that no drive can carry
 * out, misaligned as it is, is EINVAL where it does and EOPNOTSUPP where not.
 */
static bool discard_command_works(struct uring *uring, int16_t target)
{
	const struct io nonsense = { .op = OP_DISCARD, .target = target, .offset_bytes = 1, .length_bytes = 1 };
	struct io_uring_sqe *sqe = take_sqe(uring);
	struct io_uring_cqe *cqe;
	int result;

	prepare_discard(uring, sqe, &nonsense);
	sqe->flags |= uring->sqe_flags;
	if (io_uring_submit_and_wait(&uring->ring, 1) < 0 || io_uring_wait_cqe(&uring->ring, &cqe))
		return false;
	result = cqe->res;
	io_uring_cqe_seen(&uring->ring, cqe);
	return result == -EINVAL;
}

static void keep_helpers_off(struct uring *uring, int cpu)
{
	cpu_set_t others;

	if (cpu < 0 || sched_getaffinity(0, sizeof(others), &others))
		return;
	CPU_CLR(cpu, &others);
	if (CPU_COUNT(&others))
		io_uring_register_iowq_aff(&uring->ring, sizeof(others), &others);
}

/* A target that takes discards as a block device does; -1: none. */
static int target_that_discards(const struct uring *uring)
{
	for (unsigned i = 0; i < uring->target_count; i++) {
		const struct target *target = &uring->targets[i];

		if (target->may_write && target->block_device && target->discard_max_bytes)
			return i;
	}
	return -1;
}

static bool prepare_to_discard(struct uring *uring, const struct issuer_options *options)
{
	int target = target_that_discards(uring);

	if (target < 0)
		return true;
	uring->discard_command = !options->plain && discard_command_works(uring, target);
	if (uring->discard_command)
		return true;
	uring->offload = offload_start(options->depth);
	if (!uring->offload) {
		complain("cannot start the threads that discard: %s", strerror(errno));
		return false;
	}
	watch_offload(uring);
	return true;
}

struct issuer *uring_issuer(const struct issuer_options *options)
{
	struct uring *uring = calloc(1, sizeof(*uring));
	int err = -ENOMEM;

	if (uring)
		uring->handed_bytes = calloc(options->depth, sizeof(*uring->handed_bytes));
	if (uring && uring->handed_bytes)
		err = make_ring(uring, options->depth, options->plain);

	if (err) {
		complain("io_uring is not available: %s; %s", strerror(-err),
			 err == -ENOMEM ? "raise the limit of locked memory (ulimit -l)" :
					  "it needs Linux 5.11 or newer and sysctl kernel.io_uring_disabled=0");
		return NULL;
	}
	uring->issuer = (struct issuer){ uring_queue, uring_submit, uring_reap, uring_features, uring_release };
	uring->targets = options->targets;
	uring->target_count = options->target_count;
	uring->payload = options->payload;
	if (!options->plain)
		register_what_may_be(uring);
	keep_helpers_off(uring, options->helper_cpu_besides);
	return prepare_to_discard(uring, options) ? &uring->issuer : NULL;
}
