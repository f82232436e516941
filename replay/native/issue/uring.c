/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "uring.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "error.h"
#include "run/clock.h"
#include "run/host.h"
#include "run/memory.h"

/* Polls both rings, because a sleep in one would leave the completions of the other unreaped. */
static int submit_both(struct uring *uring, int64_t wait_ns)
{
	int64_t until_ns = wait_ns > 0 ? monotonic_ns() + wait_ns : 0;
	int polled = ring_submit(&uring->polled, 0);
	int err = ring_submit(&uring->ring, uring->polled.polling ? 0 : wait_ns);

	while (!ring_poll(&uring->polled) && uring->polled.polling && !ring_poll(&uring->ring) &&
	       monotonic_ns() < until_ns)
		spin_pause();
	return polled ? polled : err;
}

static int uring_submit(struct issuer *issuer, int64_t wait_ns)
{
	struct uring *uring = (struct uring *)issuer;

	return uring->polls ? submit_both(uring, wait_ns) : ring_submit(&uring->ring, wait_ns);
}

static bool uring_has_taken(struct issuer *issuer, uint32_t slot)
{
	const struct transfer *transfer = &((struct uring *)issuer)->transfers[slot];
	const struct io_uring *uring;

	if (!transfer->ring)
		return true;
	uring = &transfer->ring->uring;
	return (int)(uring->sq.sqe_tail - io_uring_sq_ready(uring) - transfer->first_entry) > 0;
}

/* Of the status of a command: its type and its code, without the bits More and Do Not Retry. */
#define NVME_STATUS_MASK 0x7ff
#define NVME_COMPARE_FAILURE 0x285

/*
 * A command ends with the status of the drive instead of the transferred bytes; 0: it transferred all of them. So did a
 * compare that found other data.
 */
static int32_t result_of(const struct uring *uring, struct io *io, const struct io_uring_cqe *cqe, int32_t bytes)
{
	bool unequal = io->op == OP_COMPARE && cqe->res > 0 && (cqe->res & NVME_STATUS_MASK) == NVME_COMPARE_FAILURE;

	if (!uring->commands || cqe->res < 0)
		return cqe->res;
	io->unequal |= unequal;
	return cqe->res && !unequal ? -EIO : bytes;
}

/* Returns whether the row is complete. */
static bool complete_entry(struct uring *uring, struct io *io, const struct io_uring_cqe *cqe)
{
	int32_t bytes = cqe->user_data >> BYTES_SHIFT & BYTES_MASK;
	int32_t result = result_of(uring, io, cqe, bytes);
	uint32_t slot = (uint32_t)cqe->user_data;

	if (cqe->user_data & UD_HOLE && result == -EOPNOTSUPP) {
		uring_zero_without_hole(uring, io, slot);
		return false;
	}
	/*
	 * The kernel submits an I/O that waited for a path of a multipath head in a thread of its own, and then does
	 * not wait for a tag.
	 */
	if (result == -EAGAIN && bytes && uring_repeat(uring, io, slot, bytes))
		return false;
	/* A short transfer on a drive is an error: some blocks were not transferred. */
	if (result >= 0 && bytes && result != bytes)
		result = -EIO;
	/* A failed flush cancels the linked write; report the error of the flush. */
	if (result < 0 && (io->status == 0 || io->status == -ECANCELED))
		io->status = result;
	io->pending--;
	if (!io->status && (bytes || cqe->user_data & UD_PREFLUSH))
		uring_queue_rest(uring, io, slot, (unsigned)(cqe->user_data >> PART_SHIFT));
	else if (!io->status && uring->commands)
		uring_queue_next_command(uring, io, slot);
	if (io->pending)
		return false;
	if (op_is_write(io->op))
		payload_release(uring->payload, uring->transfers[slot].data, row_buffer_bytes(io->length_bytes));
	return true;
}

static void await_offload(struct uring *uring)
{
	struct io_uring_sqe *sqe = ring_sqe(&uring->ring);

	io_uring_prep_read(sqe, offload_event_fd(uring->offload), &uring->offload_events,
			   sizeof(uring->offload_events), 0);
	sqe->user_data = UD_OFFLOAD;
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

static unsigned reap_ring(struct uring *uring, struct ring *ring, struct io *ios, uint32_t *slots, unsigned room)
{
	struct io_uring_cqe *cqe;
	unsigned head, seen = 0, count = 0;

	if (!ring_poll(ring))
		return 0;
	io_uring_for_each_cqe(&ring->uring, head, cqe) {
		uint32_t slot = (uint32_t)cqe->user_data;

		if (count == room)
			break;
		seen++;
		if (cqe->user_data == UD_OFFLOAD)
			await_offload(uring);
		else if (complete_entry(uring, &ios[slot], cqe))
			slots[count++] = slot;
	}
	io_uring_cq_advance(&ring->uring, seen);
	if (ring->polled)
		ring->polling -= seen;
	return count;
}

static unsigned uring_reap(struct issuer *issuer, struct io *ios, uint32_t *slots, unsigned room)
{
	struct uring *uring = (struct uring *)issuer;
	unsigned count = reap_ring(uring, &uring->ring, ios, slots, room);

	if (uring->polls)
		count += reap_ring(uring, &uring->polled, ios, slots + count, room - count);
	if (uring->offload && count < room)
		count += reap_offload(uring, ios, slots + count, room - count);
	/* Entries that a completion added would otherwise wait for the next deadline. */
	if (io_uring_sq_ready(&uring->ring.uring))
		io_uring_submit(&uring->ring.uring);
	if (uring->polls && io_uring_sq_ready(&uring->polled.uring))
		io_uring_submit(&uring->polled.uring);
	return count;
}

static const char *uring_features(struct issuer *issuer)
{
	struct uring *uring = (struct uring *)issuer;
	const struct ring *ring = &uring->ring;
	static const char *const words[] = { "false", "true" };

	snprintf(uring->features, sizeof(uring->features),
		 "{\"single_issuer\": %s, \"defer_taskrun\": %s, \"fixed_file\": %s, \"fixed_buffers\": %s, "
		 "\"ring_fd\": %s, \"discard_command\": %s, \"polled\": %s, \"passthrough\": %s}",
		 words[ring->single_issuer], words[ring->deferred], words[ring->fixed_files],
		 words[ring->fixed_buffers], words[ring->ring_fd], words[uring->discard_command],
		 words[uring->polls], words[uring->commands]);
	return uring->features;
}

static void uring_release(struct issuer *issuer)
{
	struct uring *uring = (struct uring *)issuer;

	ring_release(&uring->ring);
	if (uring->polls)
		ring_release(&uring->polled);
}

static int init_ring(struct uring *uring, struct ring *ring, const struct issuer_options *options, bool polled)
{
	struct payload *payload = uring->payload;
	int fds[(2 + HINT_COUNT) * MAX_TARGETS], err;
	unsigned fd_count = uring->target_count;
	struct iovec buffers[] = {
		[SINK_BUFFER] = { payload->sink, payload->sink_bytes },
		[POOL_BUFFER] = { payload->pool, payload->pool_bytes },
	};

	err = ring_init(ring, options->depth * ROW_COMPLETIONS, options->plain, polled, uring->commands);
	if (err)
		return err;
	for (unsigned i = 0; i < uring->target_count; i++)
		fds[i] = uring->commands ? uring->targets[i].command_fd : uring->targets[i].fd;
	for (unsigned i = 0; i < uring->target_count; i++)
		if (uring->targets[i].exclusive_fd >= 0 || uring->commands)
			fds[fd_count++] = uring->targets[i].exclusive_fd >= 0 ? uring->targets[i].exclusive_fd :
										uring->targets[i].fd;
	uring->first_hint_file = fd_count;
	for (unsigned i = 0; i < uring->target_count; i++)
		for (unsigned hint = 0; hint < HINT_COUNT; hint++)
			fds[fd_count++] = uring->targets[i].write_support.hinted ?
						  uring->targets[i].write_support.hint_fds[hint] : -1;
	ring_register_files(ring, fds, fd_count);
	if (!options->plain)
		ring_use_registered(ring, buffers, payload->pool ? 2 : 1);
	ring_avoid_cpu(ring, options->avoid_cpu);
	if (uring->commands) {
		int personality = io_uring_register_personality(&ring->uring);

		uring->personality = personality > 0 ? (uint16_t)personality : 0;
	}
	return ring_enable(ring);
}

/* The first block device that supports discards; -1: none. */
static int16_t target_that_discards(const struct uring *uring)
{
	for (unsigned i = 0; i < uring->target_count; i++) {
		const struct target *target = &uring->targets[i];

		if (target->may_write && target->block_device && target->discard_max_bytes)
			return (int16_t)i;
	}
	return -1;
}

static bool any_zoned(const struct uring *uring)
{
	for (unsigned i = 0; i < uring->target_count; i++)
		if (uring->targets[i].may_write && uring->targets[i].zone_bytes)
			return true;
	return false;
}

/* Zone management is an ioctl on all kernels, a discard on those before 6.12. */
static bool prepare_offload(struct uring *uring, const struct issuer_options *options)
{
	int16_t target = target_that_discards(uring);

	if (target >= 0 && !uring->commands)
		uring->discard_command = !options->plain && uring_discard_command_works(uring, target);
	if ((target < 0 || uring->discard_command || uring->commands) && !any_zoned(uring))
		return true;
	uring->offload = offload_new(options->depth);
	if (!uring->offload) {
		report_error(NULL, "cannot start the threads that discard: %s", strerror(errno));
		return false;
	}
	await_offload(uring);
	return true;
}

static void uring_deinit(struct issuer *issuer)
{
	struct uring *uring = (struct uring *)issuer;

	ring_deinit(&uring->ring);
	ring_deinit(&uring->polled);
	offload_free(uring->offload);
	free(uring->transfers);
	free(uring->ranges);
	free(uring);
}

static void cleanup_uring(struct uring **uring)
{
	if (*uring)
		uring_deinit(&(*uring)->issuer);
}

struct issuer *uring_issuer(const struct issuer_options *options)
{
	struct uring *uring CLEANUP(cleanup_uring) = calloc(1, sizeof(*uring));
	struct issuer *issuer;
	int err = -ENOMEM;

	if (uring) {
		uring->issuer = (struct issuer){ uring_queue_row, uring_submit, uring_has_taken, uring_reap,
						 uring_features, uring_release, uring_deinit };
		uring->targets = options->targets;
		uring->target_count = options->target_count;
		uring->payload = options->payload;
		uring->polls = options->polled;
		uring->transfers = alloc_touched(options->depth, sizeof(*uring->transfers));
		uring->ranges = alloc_touched(options->depth, sizeof(*uring->ranges));
		uring->commands = options->target_count && target_takes_commands(&options->targets[0]);
	}
	if (uring && uring->transfers && uring->ranges)
		err = init_ring(uring, &uring->ring, options, false);
	if (!err && uring->polls)
		err = init_ring(uring, &uring->polled, options, true);
	if (err == -ENOMEM)
		report_error("raise the limit of locked memory: ulimit -l unlimited", "io_uring is not available: %s",
			     strerror(-err));
	else if (err == -EINVAL && uring->commands)
		report_error("omit --passthrough", "io_uring takes no commands of NVMe before Linux 5.19");
	else if (err && !report_shortage("cannot use io_uring", -err))
		report_error(IO_URING_REMEDY, "io_uring is not available: %s", strerror(-err));
	if (err || !prepare_offload(uring, options))
		return NULL;
	issuer = &uring->issuer;
	uring = NULL;
	return issuer;
}
