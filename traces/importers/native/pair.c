/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "pair.h"

#include <errno.h>

#define MAX_QUEUED 262144
#define MAX_IN_FLIGHT 262144
#define SECTOR_SHIFT 9
#define UNKNOWN_TID (-1)
/* A completion without an issue is of an I/O from before the start, up to the timeout of drivers. */
#define MAX_IO_NS 30000000000ull
/* With silent losses: an I/O in flight for longer at the end has lost its completion. */
#define MAX_IN_FLIGHT_AT_END_NS 1000000000ull
#define SEQUENCE_FLAGS (FLAG_PREFLUSH | FLAG_FUA)

int pairing_init(struct pairing *pairing, struct rows *rows)
{
	int err;

	*pairing = (struct pairing){ .rows = rows, .stopped_ns = UINT64_MAX };
	err = table_init(&pairing->queued, MAX_QUEUED);
	return err ? err : table_init(&pairing->in_flight, MAX_IN_FLIGHT);
}

void pairing_deinit(struct pairing *pairing)
{
	table_deinit(&pairing->queued);
	table_deinit(&pairing->in_flight);
	pair_devices_deinit(&pairing->devices);
}

/* The device of an event, or NULL with *err 0 if it is not wanted. */
static struct pair_device *device_of(struct pairing *pairing, uint32_t number, int *err)
{
	struct pair_device *device = pair_devices_find(&pairing->devices, number);

	*err = 0;
	if (device || !pairing->any_device)
		return device;
	*err = pair_devices_add(&pairing->devices, number, false);
	return *err ? NULL : pair_devices_find(&pairing->devices, number);
}

/* The sector by which the events of one I/O are matched. Flushes have none. */
static uint64_t place_of(const struct blk_event *event, int8_t op)
{
	return op == OP_FLUSH ? 0 : event->sector;
}

/* The same in flight: an append completes at the sector that the drive has chosen, behind the start of its zone. */
static uint64_t place_in_flight(const struct blk_event *event, int8_t op)
{
	return op == OP_ZONE_APPEND ? 0 : place_of(event, op);
}

static bool has_no_data(int8_t op)
{
	return op == OP_FLUSH || op_is_zone_management(op);
}

/* Beyond the room the oldest entry goes: its issue was lost, or it was merged unseen. */
static int push_queued(struct pairing *pairing, const struct pending *entry)
{
	if (pairing->queued.count >= pairing->queued.room)
		table_remove(&pairing->queued, pairing->queued.oldest);
	return table_add(&pairing->queued, entry) ? 0 : -ENOMEM;
}

static int add_queued(struct pairing *pairing, const struct blk_event *event, uint64_t sector, int8_t op)
{
	const struct pending entry = {
		.sector = sector,
		.device = event->device,
		.op = op,
		.flags = event_flags(event),
		.tid = (int32_t)event->pid,
		.queued_ns = event->time_ns,
	};

	return push_queued(pairing, &entry);
}

/* Whether the drive's counters that the ledger is held against include a completion of this time. */
static bool is_counted(const struct pairing *pairing, uint64_t time_ns)
{
	return time_ns >= pairing->begun_ns && time_ns <= pairing->stopped_ns;
}

/* The tracer records a while before the capture begins, and longer than it lasts. */
static bool is_of_capture(const struct pairing *pairing, const struct pending *entry, uint64_t complete_ns)
{
	return entry->submit_ns <= pairing->stopped_ns && complete_ns >= pairing->begun_ns;
}

static void emit(struct pairing *pairing, const struct pending *entry, uint64_t complete_ns)
{
	struct pair_device *device = pair_devices_find(&pairing->devices, entry->device);
	const struct trace_row row = {
		.queued_ns = entry->queued_ns,
		.submit_ns = entry->submit_ns,
		.complete_ns = complete_ns,
		.sector = entry->first_sector,
		.length_bytes = entry->length_bytes,
		.flags = entry->flags,
		.tid = entry->tid,
		.device = (int16_t)(device - pairing->devices.items),
		.cpu = entry->cpu > INT16_MAX ? -1 : (int16_t)entry->cpu,
		.status = entry->status,
		.op = entry->op,
	};

	if (!is_of_capture(pairing, entry, complete_ns))
		return;
	if (complete_ns != TIME_UNSEEN && is_counted(pairing, complete_ns))
		device->seen[entry->op]++;
	rows_add(pairing->rows, &row);
}

static void emit_unseen(struct pairing *pairing, struct pending *entry)
{
	pairing->counts.unseen += is_of_capture(pairing, entry, TIME_UNSEEN);
	table_remove(&pairing->in_flight, entry);
	emit(pairing, entry, TIME_UNSEEN);
}

static int on_queue(struct pairing *pairing, const struct blk_event *event, int8_t op)
{
	int err = 0;

	if (op == OP_FLUSH && (event->category & CATEGORY_WRITE) && is_counted(pairing, event->time_ns))
		pairing->counts.empty_flushes++;
	/* The drive gets a write with a flush before it as two requests. */
	if (op != OP_FLUSH && (event->category & CATEGORY_FLUSH))
		err = add_queued(pairing, event, 0, OP_FLUSH);
	return err ? err : add_queued(pairing, event, place_of(event, op), op);
}

/*
 * A request is created or inserted: used only without an event of its bio's entry. The flush machinery creates
 * flushes in any thread.
 */
static int on_request(struct pairing *pairing, const struct blk_event *event, int8_t op)
{
	if (op == OP_FLUSH || table_find(&pairing->queued, event->device, event->sector, op))
		return 0;
	return add_queued(pairing, event, event->sector, op);
}

static void on_back_merge(struct pairing *pairing, const struct blk_event *event, int8_t op)
{
	struct pending *entry = table_find_newest(&pairing->queued, event->device, event->sector, op);

	pairing->counts.merged++;
	if (entry)
		table_remove(&pairing->queued, entry);
}

/* The request begins at a lower sector now, with the thread that created it. */
static int on_front_merge(struct pairing *pairing, const struct blk_event *event, int8_t op)
{
	uint64_t behind = event->sector + (event->bytes >> SECTOR_SHIFT);
	struct pending *request = table_find_newest(&pairing->queued, event->device, behind, op);
	struct pending *merged = table_find_newest(&pairing->queued, event->device, event->sector, op);
	struct pending moved;

	pairing->counts.merged++;
	/* A bio of less than a sector ends at its first sector, and cannot be merged. */
	if (!request || request == merged)
		return 0;
	if (merged)
		table_remove(&pairing->queued, merged);
	moved = *request;
	moved.sector = event->sector;
	table_remove(&pairing->queued, request);
	return push_queued(pairing, &moved);
}

/* The second part enters the queue without an event. */
static int on_split(struct pairing *pairing, const struct blk_event *event, int8_t op)
{
	struct pending *front = table_find_newest(&pairing->queued, event->device, event->sector, op);
	uint64_t behind = event_payload_number(event, 0, true, true);
	struct pending rest;

	if (!front || !behind)
		return 0;
	rest = *front;
	rest.sector = behind;
	return push_queued(pairing, &rest);
}

/* An issue that may only repeat another one is matched last, until one of them has a completion of its own. */
static bool may_be_better(const struct pairing *pairing, const struct pending *fitting)
{
	return pairing->silent_losses || (fitting->repeats && !pairing->equal_ios);
}

/* The oldest append of this length to the zone of the event: that with the last start before it. */
static struct pending *find_append(struct pairing *pairing, const struct blk_event *event)
{
	struct pending *entry = table_find(&pairing->in_flight, event->device, 0, OP_ZONE_APPEND), *fitting = NULL;

	for (; entry; entry = table_find_next(entry)) {
		if (entry->remaining_bytes == event->bytes && entry->first_sector <= event->sector &&
		    (!fitting || entry->first_sector > fitting->first_sector))
			fitting = entry;
	}
	return fitting;
}

static struct pending *find_in_flight(struct pairing *pairing, const struct blk_event *event, int8_t op)
{
	struct pending *first = table_find(&pairing->in_flight, event->device, place_in_flight(event, op), op);
	struct pending *fitting = NULL;

	if (op == OP_ZONE_APPEND)
		return find_append(pairing, event);
	/* Without completions in a recording, all I/Os at one place stay in flight. */
	for (struct pending *entry = first; entry && (!fitting || may_be_better(pairing, fitting));
	     entry = table_find_next(entry)) {
		if (entry->remaining_bytes == event->bytes &&
		    (!fitting || pairing->silent_losses || !entry->repeats))
			fitting = entry;
	}
	return fitting ? fitting : first;
}

/* Sets the thread and time of entry of an issued request. */
static void claim_queued(struct pairing *pairing, struct pending *io)
{
	struct pending *entry = table_find(&pairing->queued, io->device, io->sector, io->op);

	if (!entry)
		return;
	io->tid = entry->tid;
	io->queued_ns = entry->queued_ns;
	/* The flush machinery removes these from the request. */
	io->flags |= entry->flags & (io->op == OP_FLUSH ? 0 : SEQUENCE_FLAGS);
	/* One flush of the drive serves all waiting ones. */
	do
		table_remove(&pairing->queued, entry);
	while (io->op == OP_FLUSH && (entry = table_find(&pairing->queued, io->device, io->sector, io->op)));
}

static int on_issue(struct pairing *pairing, const struct blk_event *event, int8_t op)
{
	struct pending io = {
		.sector = place_of(event, op),
		.device = event->device,
		.op = op,
		.flags = event_flags(event),
		.tid = UNKNOWN_TID,
		.queued_ns = TIME_UNSEEN,
		.submit_ns = event->time_ns,
		.first_sector = place_of(event, op),
		.length_bytes = event->bytes,
		.remaining_bytes = event->bytes,
		.cpu = event->cpu,
		.losses_before = pairing->losses,
	};
	/* Appends to a zone are all equal. */
	struct pending *twin = op == OP_ZONE_APPEND ? NULL : find_in_flight(pairing, event, op);

	claim_queued(pairing, &io);
	if (io.tid == UNKNOWN_TID) {
		pairing->counts.from_issuer++;
		io.tid = (int32_t)event->pid;
	}
	/* After a loss, a second issue of the same I/O means that the first one's completion was lost. */
	if (twin && twin->remaining_bytes == io.remaining_bytes && twin->losses_before != pairing->losses)
		emit_unseen(pairing, twin);
	else if (twin && twin->remaining_bytes == io.remaining_bytes && !twin->repeats && io.queued_ns == TIME_UNSEEN)
		io.repeats = op != OP_FLUSH && !pairing->silent_losses; /* all flushes are equal */
	io.sector = place_in_flight(event, op);
	if (pairing->in_flight.count >= pairing->in_flight.room)
		emit_unseen(pairing, pairing->in_flight.oldest);
	return table_add(&pairing->in_flight, &io) ? 0 : -ENOMEM;
}

static int on_requeue(struct pairing *pairing, const struct blk_event *event, int8_t op)
{
	struct pending *io = find_in_flight(pairing, event, op);
	struct pending again;

	if (!io)
		return 0; /* it was requeued before its issue */
	pairing->counts.requeued++;
	table_remove(&pairing->in_flight, io);
	again = *io;
	if (op == OP_ZONE_APPEND)
		again.sector = io->first_sector;
	if (io->remaining_bytes != io->length_bytes) {
		/* The completed part is an I/O, and the rest becomes another one. */
		again.length_bytes -= io->remaining_bytes;
		emit(pairing, &again, event->time_ns);
	}
	return push_queued(pairing, &again);
}

static void on_completion_without_issue(struct pairing *pairing, const struct blk_event *event, int8_t op)
{
	struct pending *entry = table_find(&pairing->queued, event->device, place_of(event, op), op);

	if (entry)
		table_remove(&pairing->queued, entry);
	if (!is_counted(pairing, event->time_ns))
		return;
	if (entry) {
		/* It failed before the driver, or was an fsync without data. */
		pairing->counts.unissued++;
	} else if (!pairing->losses && event->time_ns - pairing->first_ns < MAX_IO_NS) {
		pairing->counts.in_flight_at_start++;
	} else {
		pairing->counts.unmatched++;
	}
}

static int on_complete(struct pairing *pairing, const struct blk_event *event, int8_t op)
{
	struct pending *io;
	struct pending rest;

	/* A write with flushes around it completes twice, the second time without bytes. */
	if (!event->bytes && !has_no_data(op))
		return 0;
	io = find_in_flight(pairing, event, op);
	if (!io) {
		on_completion_without_issue(pairing, event, op);
		return 0;
	}
	table_remove(&pairing->in_flight, io);
	pairing->equal_ios |= io->repeats;
	if (event->status)
		io->status = event->status;
	else if (op == OP_ZONE_APPEND)
		io->first_sector = event->sector;
	if (event->bytes >= io->remaining_bytes) {
		emit(pairing, io, event->time_ns);
		return 0;
	}
	rest = *io;
	rest.sector += event->bytes >> SECTOR_SHIFT;
	rest.remaining_bytes -= event->bytes;
	return table_add(&pairing->in_flight, &rest) ? 0 : -ENOMEM;
}

/* False for passed-through commands, and requests without data that would have some. */
static bool is_io(const struct blk_event *event, int8_t op)
{
	if (op < 0)
		return false;
	/* A split in text has only its sectors. */
	return has_no_data(op) || event->bytes || event->action == ACTION_COMPLETE || event->action == ACTION_SPLIT;
}

int pairing_take(struct pairing *pairing, const struct blk_event *event)
{
	struct pair_device *device;
	int8_t op = event_op(event);
	int err;

	if (event->action == ACTION_REMAP) {
		pairing->counts.remaps++;
		return 0;
	}
	if (!pairing->first_ns)
		pairing->first_ns = event->time_ns;
	pairing->newest_ns = event->time_ns;
	device = device_of(pairing, event->device, &err);
	if (err)
		return err;
	if (!device) {
		pairing->counts.not_wanted++;
		return 0;
	}
	if (!is_io(event, op)) {
		pairing->counts.other_ops += event->action == ACTION_ISSUE;
		return 0;
	}
	/* No drive has such an extent, and no trace (MOST_END_BYTES of schema.py). */
	if (event->bytes && event->sector > (uint64_t)((1ll << 62) - event->bytes) >> SECTOR_SHIFT) {
		pairing->counts.impossible_extents++;
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

/* Of a drive whose completions were not recorded, each issue is an I/O. */
static bool has_completions(const struct pairing *pairing, uint32_t device)
{
	return pair_devices_find(&pairing->devices, device)->completed > 0;
}

void pairing_finish(struct pairing *pairing)
{
	while (pairing->in_flight.oldest) {
		struct pending *entry = pairing->in_flight.oldest;

		if (entry->repeats && !pairing->equal_ios && has_completions(pairing, entry->device)) {
			pairing->counts.issued_again++;
			table_remove(&pairing->in_flight, entry);
			continue;
		}
		if (entry->losses_before != pairing->losses ||
		    (pairing->silent_losses && pairing->newest_ns - entry->submit_ns > MAX_IN_FLIGHT_AT_END_NS)) {
			emit_unseen(pairing, entry);
			continue;
		}
		pairing->counts.in_flight_at_end += is_of_capture(pairing, entry, TIME_UNSEEN);
		table_remove(&pairing->in_flight, entry);
		emit(pairing, entry, TIME_UNSEEN);
	}
}
