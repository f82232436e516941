/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "blktrace_pair.h"

#include <errno.h>

#define MAX_QUEUED 262144
#define MAX_IN_FLIGHT 262144
#define SECTOR_SHIFT 9
#define UNKNOWN_TID (-1)
/* A completion without an issue is of an I/O from before the start, unless it comes later than drivers' timeouts. */
#define LONGEST_IO_NS 30000000000ull
/* Where completions go missing silently: what has waited for longer at the end is one of them. */
#define LONGEST_AT_END_NS 1000000000ull
#define SEQUENCE_FLAGS (FLAG_PREFLUSH | FLAG_FUA)

int pairing_open(struct pairing *pairing, struct rows *rows)
{
	int err;

	*pairing = (struct pairing){ .rows = rows, .stopped_ns = UINT64_MAX };
	err = table_open(&pairing->queued, MAX_QUEUED);
	return err ? err : table_open(&pairing->in_flight, MAX_IN_FLIGHT);
}

void pairing_close(struct pairing *pairing)
{
	table_close(&pairing->queued);
	table_close(&pairing->in_flight);
}

static struct pair_device *device_of(struct pairing *pairing, uint32_t number)
{
	for (size_t i = 0; i < pairing->device_count; i++)
		if (pairing->devices[i].number == number)
			return &pairing->devices[i];
	if (!pairing->any_device || pairing->device_count == MAX_PAIR_DEVICES)
		return NULL;
	pairing->devices[pairing->device_count].number = number;
	return &pairing->devices[pairing->device_count++];
}

/* The place by which the events of one I/O find each other. Flushes have none of their own. */
static uint64_t place_of(const struct blk_event *event, int op)
{
	return op == OP_FLUSH ? 0 : event->sector;
}

static int add_queued(struct pairing *pairing, const struct blk_event *event, uint64_t sector, int op)
{
	const struct pending entry = {
		.sector = sector,
		.device = event->device,
		.op = op,
		.flags = event_flags(event),
		.tid = event->pid,
		.queued_ns = event->time_ns,
	};

	if (pairing->queued.count >= pairing->queued.room)
		table_remove(&pairing->queued, pairing->queued.oldest);
	return table_add(&pairing->queued, &entry) ? 0 : -ENOMEM;
}

static void emit(struct pairing *pairing, const struct pending *entry, uint64_t complete_ns)
{
	struct pair_device *device = device_of(pairing, entry->device);
	const struct trace_row row = {
		.queued_ns = entry->queued_ns,
		.submit_ns = entry->submit_ns,
		.complete_ns = complete_ns,
		.sector = entry->first_sector,
		.length_bytes = entry->length_bytes,
		.flags = entry->flags,
		.tid = entry->tid,
		.device = device - pairing->devices,
		.cpu = entry->cpu > INT16_MAX ? -1 : (int16_t)entry->cpu,
		.status = entry->status,
		.op = entry->op,
	};

	if (complete_ns && complete_ns <= pairing->stopped_ns)
		device->seen[entry->op]++;
	rows_add(pairing->rows, &row);
}

static void emit_unseen(struct pairing *pairing, struct pending *entry)
{
	pairing->counts.unseen++;
	table_remove(&pairing->in_flight, entry);
	emit(pairing, entry, 0);
}

static int on_queue(struct pairing *pairing, const struct blk_event *event, int op)
{
	int err = 0;

	if (op == OP_FLUSH && (event->category & CATEGORY_WRITE))
		pairing->counts.empty_flushes++;
	/* A write with a flush before it makes the drive see both. */
	if (op != OP_FLUSH && (event->category & CATEGORY_FLUSH))
		err = add_queued(pairing, event, 0, OP_FLUSH);
	return err ? err : add_queued(pairing, event, place_of(event, op), op);
}

/*
 * A request is made or inserted: news only where its bio's entry was not seen. A flush is made by the machinery
 * of flushes, in whichever thread runs it.
 */
static int on_request(struct pairing *pairing, const struct blk_event *event, int op)
{
	if (op == OP_FLUSH || table_find(&pairing->queued, event->device, event->sector, op))
		return 0;
	return add_queued(pairing, event, event->sector, op);
}

static void on_back_merge(struct pairing *pairing, const struct blk_event *event, int op)
{
	struct pending *entry = table_find_newest(&pairing->queued, event->device, event->sector, op);

	pairing->counts.merged++;
	if (entry)
		table_remove(&pairing->queued, entry);
}

/* The request begins earlier now, and is still the one of who made it. */
static int on_front_merge(struct pairing *pairing, const struct blk_event *event, int op)
{
	uint64_t behind = event->sector + (event->bytes >> SECTOR_SHIFT);
	struct pending *request = table_find_newest(&pairing->queued, event->device, behind, op);
	struct pending *merged = table_find_newest(&pairing->queued, event->device, event->sector, op);
	struct pending moved;

	pairing->counts.merged++;
	if (!request)
		return 0;
	if (merged)
		table_remove(&pairing->queued, merged);
	moved = *request;
	moved.sector = event->sector;
	table_remove(&pairing->queued, request);
	return table_add(&pairing->queued, &moved) ? 0 : -ENOMEM;
}

/* What is behind the cut enters the queue without an event of its own. */
static int on_split(struct pairing *pairing, const struct blk_event *event, int op)
{
	struct pending *front = table_find_newest(&pairing->queued, event->device, event->sector, op);
	uint64_t behind = event_payload_number(event, 0, true, true);
	struct pending rest;

	if (!front || !behind)
		return 0;
	rest = *front;
	rest.sector = behind;
	return table_add(&pairing->queued, &rest) ? 0 : -ENOMEM;
}

static struct pending *find_in_flight(struct pairing *pairing, const struct blk_event *event, int op)
{
	struct pending *first = table_find(&pairing->in_flight, event->device, place_of(event, op), op);

	struct pending *fitting = NULL;

	for (struct pending *entry = first; entry; entry = table_find_next(entry)) {
		if (entry->remaining_bytes != event->bytes)
			continue;
		fitting = entry;
		if (!pairing->silent_losses)
			break;
	}
	return fitting ? fitting : first;
}

/* Which entry into the block layer an issued request comes from; sets what it told. */
static void claim_queued(struct pairing *pairing, struct pending *io)
{
	struct pending *entry = table_find(&pairing->queued, io->device, io->sector, io->op);

	if (!entry)
		return;
	io->tid = entry->tid;
	io->queued_ns = entry->queued_ns;
	/* The flush machinery takes these off the request. */
	io->flags |= entry->flags & (io->op == OP_FLUSH ? 0 : SEQUENCE_FLAGS);
	/* One flush of the drive serves all that wait for one. */
	do
		table_remove(&pairing->queued, entry);
	while (io->op == OP_FLUSH && (entry = table_find(&pairing->queued, io->device, io->sector, io->op)));
}

static int on_issue(struct pairing *pairing, const struct blk_event *event, int op)
{
	struct pending io = {
		.sector = place_of(event, op),
		.device = event->device,
		.op = op,
		.flags = event_flags(event),
		.tid = UNKNOWN_TID,
		.submit_ns = event->time_ns,
		.first_sector = place_of(event, op),
		.length_bytes = event->bytes,
		.remaining_bytes = event->bytes,
		.cpu = event->cpu,
		.losses_before = pairing->losses,
	};
	struct pending *twin = find_in_flight(pairing, event, op);

	claim_queued(pairing, &io);
	if (io.tid == UNKNOWN_TID) {
		pairing->counts.from_issuer++;
		io.tid = event->pid;
	}
	/* After a loss, the same I/O once more says that the first one's completion was among what is lost. */
	if (twin && twin->remaining_bytes == io.remaining_bytes && twin->losses_before != pairing->losses)
		emit_unseen(pairing, twin);
	if (pairing->in_flight.count >= pairing->in_flight.room)
		emit_unseen(pairing, pairing->in_flight.oldest);
	return table_add(&pairing->in_flight, &io) ? 0 : -ENOMEM;
}

static int on_requeue(struct pairing *pairing, const struct blk_event *event, int op)
{
	struct pending *io = find_in_flight(pairing, event, op);
	struct pending again;

	if (!io)
		return 0; /* it was turned away before its issue */
	pairing->counts.requeued++;
	table_remove(&pairing->in_flight, io);
	again = *io;
	if (io->remaining_bytes != io->length_bytes) {
		/* A part is done: it is an I/O, and the rest will be another. */
		again.length_bytes -= io->remaining_bytes;
		emit(pairing, &again, event->time_ns);
	}
	return table_add(&pairing->queued, &again) ? 0 : -ENOMEM;
}

static void on_completion_without_issue(struct pairing *pairing, const struct blk_event *event, int op)
{
	struct pending *entry = table_find(&pairing->queued, event->device, place_of(event, op), op);

	if (entry) {
		/* Refused before it reached the driver, or an fsync that found nothing to write. */
		pairing->counts.unissued++;
		table_remove(&pairing->queued, entry);
	} else if (!pairing->losses && event->time_ns - pairing->first_ns < LONGEST_IO_NS) {
		pairing->counts.in_flight_at_start++;
	} else {
		pairing->counts.unmatched++;
	}
}

static int on_complete(struct pairing *pairing, const struct blk_event *event, int op)
{
	struct pending *io;
	struct pending rest;

	/* The data of a write with flushes around it says twice that it is done, the second time without bytes. */
	if (!event->bytes && op != OP_FLUSH)
		return 0;
	io = find_in_flight(pairing, event, op);
	if (!io) {
		on_completion_without_issue(pairing, event, op);
		return 0;
	}
	table_remove(&pairing->in_flight, io);
	if (event->status)
		io->status = event->status;
	if (event->bytes >= io->remaining_bytes) {
		emit(pairing, io, event->time_ns);
		return 0;
	}
	rest = *io;
	rest.sector += event->bytes >> SECTOR_SHIFT;
	rest.remaining_bytes -= event->bytes;
	return table_add(&pairing->in_flight, &rest) ? 0 : -ENOMEM;
}

/* Zone management and passed-through commands, and requests without data that are no flush. */
static bool is_io(const struct blk_event *event, int op)
{
	if (op < 0 || (event->category & CATEGORY_ZONE_APPEND))
		return false;
	return op == OP_FLUSH || event->bytes || event->action == ACTION_COMPLETE;
}

int pairing_take(struct pairing *pairing, const struct blk_event *event)
{
	struct pair_device *device;
	int op = event_op(event);

	if (event->action == ACTION_REMAP) {
		pairing->counts.remaps++;
		return 0;
	}
	if (!pairing->first_ns)
		pairing->first_ns = event->time_ns;
	pairing->newest_ns = event->time_ns;
	device = device_of(pairing, event->device);
	if (!device) {
		pairing->counts.not_wanted++;
		return 0;
	}
	if (!is_io(event, op)) {
		pairing->counts.other_ops += event->action == ACTION_ISSUE;
		return 0;
	}
	switch (event->action) {
	case ACTION_QUEUE:
		device->queued++;
		return device->bio_based ? on_issue(pairing, event, op) : on_queue(pairing, event, op);
	case ACTION_GET_REQUEST:
	case ACTION_INSERT:
		return on_request(pairing, event, op);
	case ACTION_BACK_MERGE:
		on_back_merge(pairing, event, op);
		return 0;
	case ACTION_FRONT_MERGE:
		return on_front_merge(pairing, event, op);
	case ACTION_SPLIT:
		return on_split(pairing, event, op);
	case ACTION_ISSUE:
		device->issued++;
		return device->bio_based ? 0 : on_issue(pairing, event, op);
	case ACTION_REQUEUE:
		return on_requeue(pairing, event, op);
	case ACTION_COMPLETE:
		device->completed++;
		return on_complete(pairing, event, op);
	default:
		return 0;
	}
}

void pairing_note_loss(struct pairing *pairing)
{
	pairing->losses++;
}

void pairing_finish(struct pairing *pairing)
{
	while (pairing->in_flight.oldest) {
		struct pending *entry = pairing->in_flight.oldest;

		if (entry->losses_before != pairing->losses ||
		    (pairing->silent_losses && pairing->newest_ns - entry->submit_ns > LONGEST_AT_END_NS)) {
			emit_unseen(pairing, entry);
			continue;
		}
		pairing->counts.in_flight_at_end++;
		table_remove(&pairing->in_flight, entry);
		emit(pairing, entry, 0);
	}
}
