/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What of a row the kernel is told, op by op. */
#include "uring.h"

#include <assert.h>
#include <errno.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/ioprio.h>

/* From linux/blkdev.h of 6.12 (50c52250e2d7): discards through IORING_OP_URING_CMD. */
#ifndef BLOCK_URING_CMD_DISCARD
#define BLOCK_URING_CMD_DISCARD _IO(0x12, 0)
#endif

/*
 * How the completion of a row is found. The kernel takes the interrupt all the
 * same where it makes several requests of one, or a flush that follows on it.
 */
static bool is_polled(const struct uring *uring, const struct io *io)
{
	const struct target *target = &uring->targets[io->target];

	return uring->polls && (io->op == OP_READ || io->op == OP_WRITE) &&
	       !target_splits(target, io->op, io->length_bytes) && (!(io->flags & FLAG_FUA) || target->fua);
}

/* How the ring knows a target. */
static int fd_of(const struct ring *ring, const struct uring *uring, const struct io *io)
{
	return ring->fixed_files ? io->target : uring->targets[io->target].fd;
}

/* After the row's own fields: sqe->flags is theirs too. */
static void address(const struct ring *ring, struct io_uring_sqe *sqe, uint64_t user_data)
{
	sqe->flags |= ring->fixed_files ? IOSQE_FIXED_FILE : 0;
	sqe->user_data = user_data;
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
	struct ring *ring = is_polled(uring, io) ? &uring->polled : &uring->ring;
	struct io_uring_sqe *sqe = ring_sqe(ring);
	int64_t offset_bytes = io->offset_bytes + at;
	int fd = fd_of(ring, uring, io);
	bool read = io->op == OP_READ;
	void *data = read ? payload_sink(uring->payload, length_bytes) :
			    payload_take(uring->payload, offset_bytes, length_bytes);

	if (ring->fixed_buffers && read)
		io_uring_prep_read_fixed(sqe, fd, data, length_bytes, offset_bytes, SINK_BUFFER);
	else if (ring->fixed_buffers)
		io_uring_prep_write_fixed(sqe, fd, data, length_bytes, offset_bytes, POOL_BUFFER);
	else if (read)
		io_uring_prep_read(sqe, fd, data, length_bytes, offset_bytes);
	else
		io_uring_prep_write(sqe, fd, data, length_bytes, offset_bytes);
	if (!read && (io->flags & FLAG_FUA))
		sqe->rw_flags = RWF_DSYNC;
	sqe->ioprio = priority_of(uring, io);
	address(ring, sqe, slot | (uint64_t)length_bytes << CARRIES_SHIFT);
	ring->polling += ring->polled;
}

static void queue_flush(struct uring *uring, const struct io *io, uint64_t user_data, unsigned flags)
{
	struct io_uring_sqe *sqe = ring_sqe(&uring->ring);

	/* On a block device nothing is cached by direct I/O, so this is a flush and no more. */
	io_uring_prep_fsync(sqe, fd_of(&uring->ring, uring, io), 0);
	sqe->flags |= flags;
	address(&uring->ring, sqe, user_data);
}

static bool is_long(const struct io *io)
{
	return (io->op == OP_READ || io->op == OP_WRITE) && io->length_bytes > PIECE_MAX_BYTES;
}

/* Hands on what of a long row is not with the kernel yet, as far as its window reaches. */
void uring_queue_rest(struct uring *uring, struct io *io, uint32_t slot)
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
	bool preflush = io->op == OP_WRITE && (io->flags & FLAG_PREFLUSH), parts = is_long(io);

	io->pending = 0;
	uring->handed_bytes[slot] = 0;
	if (preflush && (parts || is_polled(uring, io))) {
		/* No link goes from one ring to another, or to more than one piece: they follow when it is done. */
		io->pending = 1;
		queue_flush(uring, io, slot | OF_PREFLUSH, 0);
	} else if (parts) {
		uring_queue_rest(uring, io, slot);
	} else {
		io->pending = 1 + preflush;
		uring->handed_bytes[slot] = io->length_bytes;
		if (preflush)
			queue_flush(uring, io, slot | OF_PREFLUSH, IOSQE_IO_LINK);
		queue_transfer(uring, io, slot, 0, io->length_bytes);
	}
}

static void prepare_discard(struct uring *uring, struct io_uring_sqe *sqe, const struct io *io)
{
	int fd = fd_of(&uring->ring, uring, io);

	if (!uring->targets[io->target].block_device) {
		io_uring_prep_fallocate(sqe, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, io->offset_bytes,
					io->length_bytes);
		return;
	}
	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, fd, (void *)(uintptr_t)io->offset_bytes, 0, 0);
	sqe->cmd_op = BLOCK_URING_CMD_DISCARD;
	sqe->addr3 = io->length_bytes;
	/* By a worker: the kernel tries the submitter without waiting, which zram and other bio-based drives refuse. */
	sqe->flags |= IOSQE_ASYNC;
}

static void queue_discard(struct uring *uring, struct io *io, uint32_t slot)
{
	const struct target *target = &uring->targets[io->target];
	struct io_uring_sqe *sqe;

	if (uring->offload && target->block_device) {
		offload_discard(uring->offload, target->fd, slot, io->offset_bytes, io->length_bytes);
		return;
	}
	sqe = ring_sqe(&uring->ring);
	prepare_discard(uring, sqe, io);
	address(&uring->ring, sqe, slot);
}

/*
 * To zero a range is to keep its blocks allocated (REQ_NOUNMAP); a hole, on a
 * drive, is zeros that the drive may also unmap, and fails where it has no such
 * command instead of writing zeros.
 */
static void queue_write_zeroes(struct uring *uring, struct io *io, uint32_t slot)
{
	const struct target *target = &uring->targets[io->target];
	bool may_unmap = (io->flags & FLAG_MAY_UNMAP) && target->block_device && target->write_zeroes_max_bytes;
	struct io_uring_sqe *sqe = ring_sqe(&uring->ring);

	io_uring_prep_fallocate(sqe, fd_of(&uring->ring, uring, io),
				(may_unmap ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE) | FALLOC_FL_KEEP_SIZE,
				io->offset_bytes, io->length_bytes);
	address(&uring->ring, sqe, slot);
}

void uring_queue_row(struct issuer *issuer, struct io *io, uint32_t slot)
{
	struct uring *uring = (struct uring *)issuer;
	struct ring *other = is_polled(uring, io) ? &uring->ring : &uring->polled;

	/* Rows of two rings go out in the order of the plan. */
	if (uring->polls && io_uring_sq_ready(&other->uring))
		io_uring_submit(&other->uring);
	io->status = 0;
	io->pending = 1;
	switch (io->op) {
	case OP_READ:
	case OP_WRITE:
		queue_row(uring, io, slot);
		break;
	case OP_FLUSH:
		queue_flush(uring, io, slot, 0);
		break;
	case OP_DISCARD:
		queue_discard(uring, io, slot);
		break;
	case OP_WRITE_ZEROES:
		queue_write_zeroes(uring, io, slot);
		break;
	default:
		assert(!"an op that plan_check lets through");
	}
}

bool uring_discard_command_works(struct uring *uring, int16_t target)
{
	const struct io nonsense = { .op = OP_DISCARD, .target = target, .offset_bytes = 1, .length_bytes = 1 };
	struct io_uring *ring = &uring->ring.uring;
	struct io_uring_sqe *sqe = ring_sqe(&uring->ring);
	struct io_uring_cqe *cqe;
	int result;

	prepare_discard(uring, sqe, &nonsense);
	address(&uring->ring, sqe, 0);
	if (io_uring_submit_and_wait(ring, 1) < 0 || io_uring_wait_cqe(ring, &cqe))
		return false;
	result = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return result == -EINVAL;
}
