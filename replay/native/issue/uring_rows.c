/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The submission entries of each op. */
#include "uring.h"

#include <errno.h>
#include <linux/blkzoned.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/ioprio.h>
#include <linux/nvme_ioctl.h>
#include <string.h>

#define SECTOR_SHIFT 9

/* From linux/fs.h of 6.11. */
#ifndef RWF_ATOMIC
#define RWF_ATOMIC 0x00000040
#endif

/* From linux/blkdev.h of 6.12 (50c52250e2d7): discards through IORING_OP_URING_CMD. */
#ifndef BLOCK_URING_CMD_DISCARD
#define BLOCK_URING_CMD_DISCARD _IO(0x12, 0)
#endif

/* The kernel uses the interrupt for a row that it splits, or that a flush follows. */
static bool is_polled(const struct uring *uring, const struct io *io)
{
	const struct target *target = &uring->targets[io->target];

	return uring->polls && (io->op == OP_READ || op_is_write(io->op)) &&
	       target_requests(target, io->op, io->length_bytes) == 1 && (!(io->flags & FLAG_FUA) || target->fua);
}

static int fd_of(const struct ring *ring, const struct uring *uring, const struct io *io)
{
	const struct target *target = &uring->targets[io->target];
	int hint = hint_index(io->flags);

	/* A write through the node that has its hint. */
	if (hint >= 0 && target->write_support.hinted)
		return ring->fixed_files ? (int)uring->first_hint_file + io->target * HINT_COUNT + hint :
					   target->write_support.hint_fds[hint];
	return ring->fixed_files ? io->target : uring->commands ? target->command_fd : target->fd;
}

/* Comes after io_uring_prep_*, which overwrites sqe->flags. */
static void address(const struct ring *ring, struct io_uring_sqe *sqe, uint64_t user_data)
{
	sqe->flags |= ring->fixed_files ? IOSQE_FIXED_FILE : 0;
	sqe->user_data = user_data;
}

static uint16_t priority_of(const struct uring *uring, const struct io *io)
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

/* NVM command set, 1.0: section 3. */
enum nvme_opcode {
	NVME_FLUSH = 0x00,
	NVME_WRITE = 0x01,
	NVME_READ = 0x02,
	NVME_COMPARE = 0x05,
	NVME_WRITE_ZEROES = 0x08,
	NVME_DATASET_MANAGEMENT = 0x09,
	NVME_VERIFY = 0x0c,
};

#define NVME_FUA (1u << 30)
#define NVME_DEALLOCATE (1u << 2) /* of dataset management */

/* The command is in the entry. Its place and its data are the caller's. */
static struct nvme_uring_cmd *prepare_command(struct uring *uring, const struct io *io, enum nvme_opcode opcode,
					      uint64_t user_data, uint8_t flags)
{
	struct io_uring_sqe *sqe = ring_sqe(&uring->ring);
	struct nvme_uring_cmd *command = (struct nvme_uring_cmd *)sqe->cmd;

	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, fd_of(&uring->ring, uring, io), NULL, 0, 0);
	sqe->cmd_op = NVME_URING_CMD_IO;
	sqe->flags |= flags;
	sqe->personality = uring->personality;
	address(&uring->ring, sqe, user_data);
	memset(command, 0, sizeof(*command));
	command->opcode = (uint8_t)opcode;
	command->nsid = uring->targets[io->target].namespace;
	return command;
}

static void place_command(struct nvme_uring_cmd *command, const struct target *target, const struct io *io,
			  int64_t offset_bytes, int64_t length_bytes)
{
	uint64_t first = (uint64_t)(offset_bytes / target->logical_block_bytes);

	command->cdw10 = (uint32_t)first;
	command->cdw11 = (uint32_t)(first >> 32);
	command->cdw12 = (uint32_t)(length_bytes / target->logical_block_bytes - 1);
	if (io->flags & FLAG_FUA)
		command->cdw12 |= NVME_FUA;
}

void uring_queue_next_command(struct uring *uring, struct io *io, uint32_t slot)
{
	const struct target *target = &uring->targets[io->target];
	struct transfer *transfer = &uring->transfers[slot];
	int64_t at = io->offset_bytes + transfer->submitted_bytes, left = io->length_bytes - transfer->submitted_bytes;
	bool discard = io->op == OP_DISCARD, verify = io->op == OP_VERIFY;
	int64_t limit_bytes = discard ? target->discard_max_bytes :
			      verify ? target->write_support.verify_max_bytes : target->write_zeroes_max_bytes;
	int64_t length_bytes = left < limit_bytes ? left : limit_bytes;
	struct nvme_range *range = &uring->ranges[slot];
	struct nvme_uring_cmd *command;

	if ((!discard && !verify && io->op != OP_WRITE_ZEROES) || !length_bytes)
		return;
	transfer->submitted_bytes += length_bytes;
	io->pending++;
	command = prepare_command(uring, io, discard ? NVME_DATASET_MANAGEMENT : verify ? NVME_VERIFY : NVME_WRITE_ZEROES,
				  slot, 0);
	if (!discard) {
		place_command(command, target, io, at, length_bytes);
		return;
	}
	*range = (struct nvme_range){
		.blocks = (uint32_t)(length_bytes / target->logical_block_bytes),
		.first = (uint64_t)(at / target->logical_block_bytes),
	};
	command->addr = (uintptr_t)range;
	command->data_len = sizeof(*range);
	command->cdw11 = NVME_DEALLOCATE;
}

static void queue_commands(struct uring *uring, struct io *io, uint32_t slot)
{
	uring->transfers[slot].submitted_bytes = 0;
	io->pending = 0;
	uring_queue_next_command(uring, io, slot);
}

/* The parts of a long row's buffer: a complete piece makes room for the next one. */
static size_t part_bytes(const struct target *target)
{
	return payload_whole_bytes(target_piece_bytes(target));
}

/* A piece of a row, or all of it, that starts `at` bytes into the row. */
static void queue_transfer(struct uring *uring, const struct io *io, uint32_t slot, int64_t at, unsigned length_bytes,
			   unsigned part, uint8_t flags)
{
	uint64_t user_data = slot | (uint64_t)length_bytes << BYTES_SHIFT | (uint64_t)part << PART_SHIFT;
	struct ring *ring = is_polled(uring, io) ? &uring->polled : &uring->ring;
	int64_t offset_bytes = io->offset_bytes + at;
	int fd = fd_of(ring, uring, io);
	bool read = io->op == OP_READ, compare = io->op == OP_COMPARE;
	struct io_uring_sqe *sqe;
	void *data;

	if (read) {
		data = payload_sink(uring->payload, length_bytes);
	} else if (compare) {
		/* The plan was checked: all of the row is in one range. The kernel only reads it. */
		data = (void *)compares_data(&uring->targets[io->target].compares, offset_bytes, length_bytes);
	} else {
		data = uring->transfers[slot].data + (part ? part * part_bytes(&uring->targets[io->target]) : 0);
		payload_put_stamps(uring->payload, data, offset_bytes, length_bytes);
	}
	if (uring->commands) {
		struct nvme_uring_cmd *command =
			prepare_command(uring, io, read ? NVME_READ : compare ? NVME_COMPARE : NVME_WRITE, user_data, 0);

		place_command(command, &uring->targets[io->target], io, offset_bytes, length_bytes);
		command->addr = (uintptr_t)data;
		command->data_len = length_bytes;
		return;
	}
	sqe = ring_sqe(ring);
	if (ring->fixed_buffers && read)
		io_uring_prep_read_fixed(sqe, fd, data, length_bytes, offset_bytes, SINK_BUFFER);
	else if (ring->fixed_buffers && !(io->flags & FLAG_ATOMIC)) /* whose data the kernel takes unregistered only */
		io_uring_prep_write_fixed(sqe, fd, data, length_bytes, offset_bytes, POOL_BUFFER);
	else if (read)
		io_uring_prep_read(sqe, fd, data, length_bytes, offset_bytes);
	else
		io_uring_prep_write(sqe, fd, data, length_bytes, offset_bytes);
	if (!read)
		sqe->rw_flags = (io->flags & FLAG_FUA ? RWF_DSYNC : 0) | (io->flags & FLAG_ATOMIC ? RWF_ATOMIC : 0);
	sqe->ioprio = priority_of(uring, io);
	sqe->flags |= flags;
	address(ring, sqe, user_data);
	ring->polling += ring->polled;
}

bool uring_repeat(struct uring *uring, const struct io *io, uint32_t slot, int32_t length_bytes)
{
	/* The place of a piece is not known any more. */
	if (uring->commands || length_bytes != io->length_bytes || is_polled(uring, io))
		return false;
	queue_transfer(uring, io, slot, 0, (unsigned)length_bytes, 0, IOSQE_ASYNC);
	return true;
}

static void queue_flush(struct uring *uring, const struct io *io, uint64_t user_data, uint8_t flags)
{
	struct io_uring_sqe *sqe;

	if (uring->commands) {
		prepare_command(uring, io, NVME_FLUSH, user_data, flags);
		return;
	}
	sqe = ring_sqe(&uring->ring);
	/* Direct I/O leaves nothing in the page cache, so on a block device this is only a flush. */
	io_uring_prep_fsync(sqe, fd_of(&uring->ring, uring, io), 0);
	sqe->flags |= flags;
	address(&uring->ring, sqe, user_data);
}

void uring_queue_rest(struct uring *uring, struct io *io, uint32_t slot, unsigned part)
{
	const struct target *target = &uring->targets[io->target];
	struct transfer *transfer = &uring->transfers[slot];
	int64_t piece_bytes = target_piece_bytes(target);
	/* A zone takes one write after the other. */
	unsigned parts = target->zone_bytes ? 1 : (unsigned)(ROW_WINDOW_BYTES / part_bytes(target));

	if (transfer->submitted_bytes == io->length_bytes)
		return;
	if (parts > ROW_COMPLETIONS)
		parts = ROW_COMPLETIONS;
	for (; io->pending < parts && transfer->submitted_bytes < io->length_bytes; part++) {
		int64_t at = transfer->submitted_bytes, left = io->length_bytes - at;
		unsigned length_bytes = (unsigned)(left < piece_bytes ? left : piece_bytes);

		transfer->submitted_bytes += length_bytes;
		io->pending++;
		queue_transfer(uring, io, slot, at, length_bytes, part, 0);
	}
}

/* A read, a compare, or a write with its preflush. */
static void queue_row(struct uring *uring, struct io *io, uint32_t slot)
{
	int64_t most_bytes = uring->commands ? target_piece_bytes(&uring->targets[io->target]) : PIECE_MAX_BYTES;
	bool preflush = op_is_write(io->op) && (io->flags & FLAG_PREFLUSH), parts = io->length_bytes > most_bytes;
	struct transfer *transfer = &uring->transfers[slot];

	io->pending = 0;
	transfer->submitted_bytes = 0;
	if (op_is_write(io->op))
		transfer->data = payload_claim(uring->payload, row_buffer_bytes(io->length_bytes));
	if (preflush && (parts || is_polled(uring, io))) {
		/* A link cannot cross rings or precede several pieces, so the write follows the completed flush. */
		io->pending = 1;
		queue_flush(uring, io, slot | UD_PREFLUSH, 0);
	} else if (parts) {
		uring_queue_rest(uring, io, slot, 0);
	} else {
		io->pending = 1 + preflush;
		transfer->submitted_bytes = io->length_bytes;
		if (preflush)
			queue_flush(uring, io, slot | UD_PREFLUSH, IOSQE_IO_LINK);
		queue_transfer(uring, io, slot, 0, (unsigned)io->length_bytes, 0, 0);
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
	/* By a worker: bio-based drives such as zram refuse the nonblocking attempt of the submitter. */
	sqe->flags |= IOSQE_ASYNC;
}

static void queue_discard(struct uring *uring, struct io *io, uint32_t slot)
{
	const struct target *target = &uring->targets[io->target];
	struct io_uring_sqe *sqe;

	if (!uring->discard_command && target->block_device) {
		offload_ioctl(uring->offload, target->fd, BLKDISCARD, slot, io->offset_bytes, io->length_bytes);
		return;
	}
	sqe = ring_sqe(&uring->ring);
	prepare_discard(uring, sqe, io);
	address(&uring->ring, sqe, slot);
}

static void queue_zone_management(struct uring *uring, const struct io *io, uint32_t slot)
{
	static const unsigned long commands[OP_COUNT] = {
		[OP_ZONE_RESET] = BLKRESETZONE,
		[OP_ZONE_RESET_ALL] = BLKRESETZONE,
		[OP_ZONE_OPEN] = BLKOPENZONE,
		[OP_ZONE_CLOSE] = BLKCLOSEZONE,
		[OP_ZONE_FINISH] = BLKFINISHZONE,
	};
	const struct target *target = &uring->targets[io->target];
	int64_t left_bytes = target->size_bytes - io->offset_bytes, length_bytes = target->zone_bytes;

	/* A reset of the whole drive becomes one command if the drive has it. The last zone may be smaller. */
	if (io->op == OP_ZONE_RESET_ALL || length_bytes > left_bytes)
		length_bytes = left_bytes;
	offload_ioctl(uring->offload, target->fd, commands[io->op], slot, io->offset_bytes >> SECTOR_SHIFT,
		      length_bytes >> SECTOR_SHIFT);
}

/* FALLOC_FL_ZERO_RANGE keeps blocks allocated (REQ_NOUNMAP); the drive may unmap a hole. */
static void queue_write_zeroes(struct uring *uring, struct io *io, uint32_t slot, bool hole)
{
	struct io_uring_sqe *sqe = ring_sqe(&uring->ring);

	io->pending = 1;
	io_uring_prep_fallocate(sqe, fd_of(&uring->ring, uring, io),
				(hole ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE) | FALLOC_FL_KEEP_SIZE,
				io->offset_bytes, io->length_bytes);
	address(&uring->ring, sqe, slot | (hole ? UD_HOLE : 0));
}

static bool is_hole(const struct uring *uring, const struct io *io)
{
	const struct target *target = &uring->targets[io->target];

	return (io->flags & FLAG_MAY_UNMAP) && target->block_device && target->write_zeroes_max_bytes;
}

void uring_queue_row(struct issuer *issuer, struct io *io, uint32_t slot)
{
	struct uring *uring = (struct uring *)issuer;
	struct ring *other = is_polled(uring, io) ? &uring->ring : &uring->polled;
	struct transfer *transfer = &uring->transfers[slot];
	unsigned first, first_polled;

	/* Keeps the order of the plan between two rings. */
	if (uring->polls && io_uring_sq_ready(&other->uring))
		io_uring_submit(&other->uring);
	first = uring->ring.uring.sq.sqe_tail;
	first_polled = uring->polled.uring.sq.sqe_tail;
	io->status = 0;
	io->unequal = false;
	io->pending = 1;
	switch (io->op) {
	case OP_READ:
	case OP_WRITE:
	case OP_ZONE_APPEND:
	case OP_COMPARE:
		queue_row(uring, io, slot);
		break;
	case OP_FLUSH:
		queue_flush(uring, io, slot, 0);
		break;
	case OP_DISCARD:
		if (uring->commands)
			queue_commands(uring, io, slot);
		else
			queue_discard(uring, io, slot);
		break;
	case OP_WRITE_ZEROES:
		if (uring->commands)
			queue_commands(uring, io, slot);
		else
			queue_write_zeroes(uring, io, slot, is_hole(uring, io));
		break;
	case OP_VERIFY:
		queue_commands(uring, io, slot);
		break;
	default:
		queue_zone_management(uring, io, slot);
		break;
	}
	transfer->ring = uring->ring.uring.sq.sqe_tail != first ? &uring->ring :
			 uring->polled.uring.sq.sqe_tail != first_polled ? &uring->polled : NULL;
	transfer->first_entry = transfer->ring == &uring->ring ? first : first_polled;
}

void uring_zero_without_hole(struct uring *uring, struct io *io, uint32_t slot)
{
	queue_write_zeroes(uring, io, slot, false);
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
