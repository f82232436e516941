/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The model computes when an I/O completes; a heap holds the I/Os in flight. On a virtual clock a wait moves the clock
 * to the next completion.
 */
#include "simulated.h"

#include <stdlib.h>

#include "due_heap.h"
#include "error.h"

/* A wait spins this long before a completion, because a wake-up takes time. */
#define SPIN_NS 60000ll

struct simulated {
	struct issuer issuer;
	struct run_clock *clock;
	struct drive *drives;
	unsigned drive_count;
	struct io *queued[BATCH_ROWS];
	uint32_t queued_slots[BATCH_ROWS];
	unsigned queued_count;
	struct due_heap in_flight;
	uint64_t order;
	uint32_t *done; /* ring of completed and not reaped slots */
	unsigned depth, done_first, done_count;
};

/* Passes completions up to now to the drives, in their order. */
static void settle(struct simulated *simulated, int64_t now_ns)
{
	struct due_heap *in_flight = &simulated->in_flight;

	while (in_flight->count && in_flight->entries[0].due_ns <= now_ns) {
		struct due io = due_heap_pop(in_flight);

		drive_complete(&simulated->drives[io.target], io.due_ns, io.op);
		simulated->done[(simulated->done_first + simulated->done_count++) % simulated->depth] = io.slot;
	}
}

static void wait_for_completion(struct simulated *simulated, int64_t wait_ns)
{
	struct run_clock *clock = simulated->clock;
	int64_t now_ns = run_clock_ns(clock), until_ns = now_ns + wait_ns;

	if (simulated->done_count)
		return;
	if (simulated->in_flight.count && simulated->in_flight.entries[0].due_ns < until_ns)
		until_ns = simulated->in_flight.entries[0].due_ns;
	if (clock->is_virtual) {
		clock->now_ns = until_ns > now_ns ? until_ns : now_ns;
		return;
	}
	/* A signal also ends the wait. */
	if (until_ns - now_ns > SPIN_NS && !sleep_ns(until_ns - now_ns - SPIN_NS))
		return;
	while (run_clock_ns(clock) < until_ns)
		spin_pause();
}

static void simulated_queue(struct issuer *issuer, struct io *io, uint32_t slot)
{
	struct simulated *simulated = (struct simulated *)issuer;

	io->status = 0;
	io->pending = 0;
	simulated->queued[simulated->queued_count] = io;
	simulated->queued_slots[simulated->queued_count++] = slot;
}

static int simulated_submit(struct issuer *issuer, int64_t wait_ns)
{
	struct simulated *simulated = (struct simulated *)issuer;

	for (unsigned i = 0; i < simulated->queued_count; i++) {
		const struct io *io = simulated->queued[i];

		settle(simulated, io->submit_ns);
		due_heap_push(&simulated->in_flight, (struct due){
			.due_ns = drive_submit(&simulated->drives[io->target], io->submit_ns, io->op, io->flags,
					       io->offset_bytes, io->length_bytes),
			.order = simulated->order++,
			.slot = simulated->queued_slots[i],
			.target = io->target,
			.op = io->op,
		});
	}
	simulated->queued_count = 0;
	if (wait_ns > 0)
		wait_for_completion(simulated, wait_ns);
	return 0;
}

static unsigned simulated_reap(struct issuer *issuer, struct io *ios, uint32_t *slots, unsigned room)
{
	struct simulated *simulated = (struct simulated *)issuer;
	unsigned count = 0;

	(void)ios;
	settle(simulated, run_clock_ns(simulated->clock));
	for (; count < room && simulated->done_count; count++) {
		slots[count] = simulated->done[simulated->done_first];
		simulated->done_first = (simulated->done_first + 1) % simulated->depth;
		simulated->done_count--;
	}
	return count;
}

static const char *simulated_features(struct issuer *issuer)
{
	struct simulated *simulated = (struct simulated *)issuer;

	return simulated->clock->is_virtual ? "{\"simulated\": true, \"clock\": \"virtual\"}" :
					      "{\"simulated\": true, \"clock\": \"real\"}";
}

static void simulated_deinit(struct issuer *issuer)
{
	struct simulated *simulated = (struct simulated *)issuer;

	for (unsigned i = 0; i < simulated->drive_count; i++)
		drive_deinit(&simulated->drives[i]);
	free(simulated->in_flight.entries);
	free(simulated->done);
	free(simulated);
}

void simulated_write_json(struct issuer *issuer, FILE *out)
{
	struct simulated *simulated = (struct simulated *)issuer;
	int64_t now_ns = run_clock_ns(simulated->clock);

	settle(simulated, now_ns);
	fputs("{\"samples\": ", out);
	for (unsigned i = 0; i < simulated->drive_count; i++)
		drive_end(&simulated->drives[i], now_ns);
	drive_write_samples(&simulated->drives[0], out);
	fputs(", \"states\": [", out);
	for (unsigned i = 0; i < simulated->drive_count; i++) {
		fputs(i ? ", " : "", out);
		drive_write_state(&simulated->drives[i], out);
	}
	fputs("]}", out);
}

struct issuer *simulated_issuer(struct drive *drives, unsigned drive_count, unsigned depth, struct run_clock *clock)
{
	struct simulated *simulated = calloc(1, sizeof(*simulated));
	bool failed = !simulated;

	if (simulated) {
		simulated->issuer = (struct issuer){ simulated_queue, simulated_submit, NULL, simulated_reap,
						     simulated_features, NULL, simulated_deinit };
		simulated->clock = clock;
		simulated->drives = drives;
		simulated->depth = depth;
		simulated->in_flight.entries = calloc(depth, sizeof(*simulated->in_flight.entries));
		simulated->done = calloc(depth, sizeof(*simulated->done));
		failed = !simulated->in_flight.entries || !simulated->done;
	}
	for (unsigned i = 0; i < drive_count && !failed; i++, simulated->drive_count++)
		failed = drive_init(&drives[i]);
	if (!failed)
		return &simulated->issuer;
	report_error(NULL, "cannot simulate the drive: out of memory");
	if (simulated)
		simulated_deinit(&simulated->issuer);
	return NULL;
}
