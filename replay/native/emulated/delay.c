/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "delay.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capabilities.h"
#include "run/clock.h"
#include "run/host.h"
#include "target/target.h"

/* A reply is late from this, or from this share of its latency on, whichever is longer. */
#define LATE_NS 10000ll
#define LATE_SHARE 0.05
/* An I/O that was announced longer ago is another one. */
#define LONGEST_WAY_NS (10 * NS_PER_S)
/* Of the difference that each completion shows; no more of a late one, which other work or an idle processor delayed. */
#define LEARNED_PART 16
#define LEARNED_MOST_NS 2000ll
#define LATER_MOST_NS 1000000ll
/* The model still holds an I/O whose reply left early, so it has room for more than the slots. */
#define MODELED_PER_SLOT 2

int delay_init(struct delay *delay, struct drive *drive, unsigned slots)
{
	memset(delay, 0, sizeof(*delay));
	delay->drive = drive;
	delay->constant_ns = DELAY_NONE;
	delay->start_ns = monotonic_ns();
	delay->modeled.entries = calloc(MODELED_PER_SLOT * slots, sizeof(*delay->modeled.entries));
	delay->replies.entries = calloc(slots, sizeof(*delay->replies.entries));
	if (!delay->modeled.entries || !delay->replies.entries) {
		free(delay->modeled.entries);
		free(delay->replies.entries);
		return -ENOMEM;
	}
	delay->slots = slots;
	for (unsigned i = 0; i < slots; i++)
		delay->free_slots[delay->free_count++] = slots - 1 - i;
	pthread_mutex_init(&delay->lock, NULL);
	pthread_cond_init(&delay->slot_free, NULL);
	return 0;
}

void delay_deinit(struct delay *delay)
{
	pthread_cond_destroy(&delay->slot_free);
	pthread_mutex_destroy(&delay->lock);
	free(delay->modeled.entries);
	free(delay->replies.entries);
}

static enum io_kind kind_of(enum trace_op op)
{
	return op == OP_READ ? KIND_READ : op == OP_WRITE ? KIND_WRITE : KIND_BLOCKING;
}

static bool is_blocking(enum trace_op op)
{
	return kind_of(op) == KIND_BLOCKING;
}

/* ---- the sending thread ---- */

static void wake_sender(struct delay *delay)
{
	if (delay->wake) {
		delay->wake(delay->backend);
		return;
	}
	atomic_fetch_add(&delay->generation, 1);
	if (atomic_load(&delay->sleeping))
		syscall(SYS_futex, &delay->generation, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Until a time of CLOCK_MONOTONIC, or until another reply is first. Returns for how long it slept. */
static int64_t wait_until(struct delay *delay, int64_t until_ns, uint32_t generation)
{
	int64_t sleep_until_ns = until_ns - DELAY_SPIN_NS, from_ns = monotonic_ns();

	if (sleep_until_ns > from_ns) {
		struct timespec deadline = { sleep_until_ns / NS_PER_S, sleep_until_ns % NS_PER_S };

		atomic_store(&delay->sleeping, true);
		/* The first futex operation with an absolute time. A changed generation ends it at once. */
		syscall(SYS_futex, &delay->generation, FUTEX_WAIT_BITSET_PRIVATE, generation,
			until_ns == INT64_MAX ? NULL : &deadline, NULL, FUTEX_BITSET_MATCH_ANY);
		atomic_store(&delay->sleeping, false);
		return monotonic_ns() - from_ns;
	}
	while (monotonic_ns() < until_ns && atomic_load_explicit(&delay->generation, memory_order_relaxed) == generation)
		spin_pause();
	return 0;
}

static void count_lateness(struct delay *delay, const struct emulated_io *io, int64_t now_ns)
{
	int64_t late_ns = now_ns - (io->send_ns > io->due_ns ? io->send_ns : io->due_ns);
	double limit_ns = LATE_SHARE * (double)(io->due_ns - io->arrived_ns);

	if (delay->constant_ns != DELAY_NONE || late_ns <= LATE_NS || (double)late_ns <= limit_ns)
		return;
	delay->counts.late_ios++;
	delay->counts.late_ns += late_ns;
	if (late_ns > delay->counts.latest_ns)
		delay->counts.latest_ns = late_ns;
}

static void free_slot(struct delay *delay, const struct emulated_io *io)
{
	delay->free_slots[delay->free_count++] = (uint32_t)(io - delay->ios);
	pthread_cond_signal(&delay->slot_free);
}

/* Under the lock, which it releases while it sends. */
static void send_reply(struct delay *delay, struct emulated_io *io)
{
	int64_t now_ns = monotonic_ns();

	count_lateness(delay, io, now_ns);
	delay->sent[delay->sent_count++ % DELAY_SLOTS] = (struct sent){
		io->offset_bytes, now_ns, io->complete_ns, io->op, io->constant, false,
	};
	if (is_blocking(io->op) && !--delay->blocking)
		delay->counts.blocking_ns += now_ns - delay->blocking_since_ns;
	pthread_mutex_unlock(&delay->lock);
	delay->reply(delay->backend, io);
	pthread_mutex_lock(&delay->lock);
	free_slot(delay, io);
}

static void send_first(struct delay *delay)
{
	struct emulated_io *io = &delay->ios[due_heap_pop(&delay->replies).slot];

	if (io->ready)
		send_reply(delay, io);
	else
		io->overdue = true;
}

/* Under the lock. `all`: also what is not due yet. */
static int64_t send_due(struct delay *delay, bool all)
{
	while (delay->replies.count && (all || delay->replies.entries[0].due_ns <= monotonic_ns()))
		send_first(delay);
	return delay->replies.count ? delay->replies.entries[0].due_ns : INT64_MAX;
}

static void note_oldest(struct delay *delay, int64_t first_ns)
{
	atomic_store_explicit(&delay->oldest_ns, first_ns == INT64_MAX ? 0 : first_ns, memory_order_relaxed);
}

int64_t delay_send_due(struct delay *delay)
{
	int64_t first_ns;

	pthread_mutex_lock(&delay->lock);
	first_ns = send_due(delay, false);
	note_oldest(delay, first_ns);
	pthread_mutex_unlock(&delay->lock);
	return first_ns;
}

static void *send_when_due(void *argument)
{
	struct delay *delay = argument;
	struct realtime_share realtime;
	bool stopping;

	capabilities_limit(SERVING_CAPABILITIES);
	host_reduce_timer_slack();
	realtime_begin(&realtime, monotonic_ns());
	do {
		uint32_t generation = atomic_load(&delay->generation);
		int64_t first_ns;

		stopping = atomic_load(&delay->stopping);
		first_ns = delay_send_due(delay);
		if (!stopping) {
			int64_t slept_ns = wait_until(delay, first_ns, generation);

			realtime_review(&realtime, monotonic_ns(), slept_ns);
		}
	} while (!stopping);
	pthread_mutex_lock(&delay->lock);
	send_due(delay, true);
	pthread_mutex_unlock(&delay->lock);
	return NULL;
}

int delay_start(struct delay *delay, void (*reply)(void *backend, const struct emulated_io *io), void *backend)
{
	int err;

	delay->reply = reply;
	delay->backend = backend;
	err = pthread_create(&delay->sender, NULL, send_when_due, delay);
	delay->has_sender = !err;
	return -err;
}

void delay_stop(struct delay *delay)
{
	if (!delay->has_sender)
		return;
	pthread_mutex_lock(&delay->lock);
	atomic_store(&delay->stopping, true);
	wake_sender(delay);
	pthread_mutex_unlock(&delay->lock);
	pthread_join(delay->sender, NULL);
	delay->has_sender = false;
}

/* ---- submission ---- */

struct emulated_io *delay_take(struct delay *delay)
{
	struct emulated_io *io;
	char *buffer;

	pthread_mutex_lock(&delay->lock);
	while (!delay->free_count)
		pthread_cond_wait(&delay->slot_free, &delay->lock);
	io = &delay->ios[delay->free_slots[--delay->free_count]];
	pthread_mutex_unlock(&delay->lock);
	buffer = io->buffer;
	*io = (struct emulated_io){ .buffer = buffer };
	return io;
}

void delay_give_back(struct delay *delay, const struct emulated_io *io)
{
	pthread_mutex_lock(&delay->lock);
	free_slot(delay, io);
	pthread_mutex_unlock(&delay->lock);
}

/* Passes completions up to now to the drive, in their order, and more if the heap is full. */
static void settle(struct delay *delay, int64_t now_ns)
{
	struct due_heap *modeled = &delay->modeled;

	while (modeled->count &&
	       (modeled->entries[0].due_ns <= now_ns || modeled->count == MODELED_PER_SLOT * delay->slots)) {
		struct due io = due_heap_pop(modeled);

		drive_complete(delay->drive, io.due_ns < now_ns ? io.due_ns : now_ns, io.op);
	}
}

/* Returns the completion time on CLOCK_MONOTONIC. */
static int64_t model(struct delay *delay, enum trace_op op, int64_t offset_bytes, int64_t length_bytes, int64_t issued_ns)
{
	int64_t now_ns = issued_ns - delay->start_ns, complete_ns;

	if (now_ns < delay->latest_ns)
		now_ns = delay->latest_ns;
	delay->latest_ns = now_ns;
	settle(delay, now_ns);
	complete_ns = drive_submit(delay->drive, now_ns, op, 0, offset_bytes, length_bytes);
	due_heap_push(&delay->modeled, (struct due){ .due_ns = complete_ns, .order = delay->order, .op = (int8_t)op });
	return delay->start_ns + complete_ns;
}

/* ---- issued and not yet here, replied and not yet complete ---- */

void delay_set_noted(struct delay *delay, void (*take_noted)(void *notes), void *notes)
{
	pthread_mutex_lock(&delay->lock);
	delay->take_noted = take_noted;
	delay->notes = notes;
	pthread_mutex_unlock(&delay->lock);
}

/* A request that never arrives in this form, such as one that the kernel issued anew, leaves its place to another. */
static struct announced *place_of_new(struct delay *delay)
{
	struct announced *oldest = delay->announced;

	if (delay->announced_count < DELAY_SLOTS)
		return &delay->announced[delay->announced_count++];
	for (unsigned i = 1; i < DELAY_SLOTS; i++) {
		if (delay->announced[i].issued_ns < oldest->issued_ns)
			oldest = &delay->announced[i];
	}
	return oldest;
}

static void note_issue(struct delay *delay, enum trace_op op, int64_t offset_bytes, int64_t length_bytes, int64_t issued_ns)
{
	struct announced io = { offset_bytes, issued_ns, DELAY_NONE, op };

	if (delay->constant_ns == DELAY_NONE)
		io.complete_ns = model(delay, op, offset_bytes, length_bytes, issued_ns);
	*place_of_new(delay) = io;
}

/*
 * The overhead grows with the I/Os in flight, and behind idle time: follows it, hardly moved by late ones. What the
 * program itself needs after the kernel's completion is a part of the calibrated overhead, and known from the calibration.
 */
static void learn(struct delay *delay, const struct sent *io, int64_t later_ns)
{
	enum io_kind kind = kind_of(io->op);
	int64_t *learning_ns = io->constant ? &delay->known_ns[kind] : &delay->later_ns[kind];
	int64_t learned_ns = (later_ns - delay->known_ns[kind]) / LEARNED_PART;

	*learning_ns += learned_ns < LEARNED_MOST_NS ? learned_ns : LEARNED_MOST_NS;
	if (*learning_ns > LATER_MOST_NS)
		*learning_ns = LATER_MOST_NS;
}

static void note_completion(struct delay *delay, enum trace_op op, int64_t offset_bytes, int64_t completed_ns)
{
	unsigned count = delay->sent_count < DELAY_SLOTS ? delay->sent_count : DELAY_SLOTS;

	for (unsigned i = 1; i <= count; i++) {
		struct sent *io = &delay->sent[(delay->sent_count - i) % DELAY_SLOTS];

		if (io->offset_bytes != offset_bytes || io->op != op || io->sent_ns > completed_ns)
			continue;
		if (!io->complete)
			learn(delay, io, completed_ns - io->complete_ns);
		io->complete = true;
		return;
	}
}

/* Under the lock. */
void delay_noted(struct delay *delay, const struct noted *noted)
{
	enum trace_op op = noted->op;

	if (noted->is_complete)
		note_completion(delay, op, (int64_t)noted->offset_bytes, (int64_t)noted->at_ns);
	else
		note_issue(delay, op, (int64_t)noted->offset_bytes, noted->length_bytes, (int64_t)noted->at_ns);
}

/* Gives an I/O that arrived the time of its issue. Returns its completion by the model; DELAY_NONE: it is not in there. */
static int64_t take_announced(struct delay *delay, struct emulated_io *io)
{
	struct announced *newest = NULL, found;

	for (unsigned i = 0; i < delay->announced_count; i++) {
		struct announced *other = &delay->announced[i];

		if (other->offset_bytes == io->offset_bytes && other->op == io->op &&
		    (!newest || other->issued_ns > newest->issued_ns))
			newest = other;
	}
	if (!newest)
		return DELAY_NONE;
	found = *newest;
	*newest = delay->announced[--delay->announced_count];
	if (io->arrived_ns - found.issued_ns >= LONGEST_WAY_NS)
		return DELAY_NONE;
	if (found.issued_ns < io->arrived_ns)
		io->arrived_ns = found.issued_ns;
	return found.complete_ns;
}

static int64_t overhead_ns(const struct delay *delay, const struct emulated_io *io)
{
	const struct overhead *overhead = &delay->overheads[kind_of(io->op)];

	return overhead->io_ns + (int64_t)(overhead->ns_per_byte * (double)io->length_bytes);
}

static void count(struct delay *delay, const struct emulated_io *io)
{
	delay->counts.ios[io->op]++;
	delay->counts.bytes[io->op] += io->length_bytes;
	if (!is_blocking(io->op) && delay->blocking)
		delay->counts.beside_blocking++;
}

static void push_reply(struct delay *delay, const struct emulated_io *io)
{
	due_heap_push(&delay->replies, (struct due){
		.due_ns = io->send_ns, .order = delay->order++, .slot = (uint32_t)(io - delay->ios), .op = (int8_t)io->op,
	});
}

void delay_submit(struct delay *delay, struct emulated_io *io)
{
	int64_t complete_ns;
	bool is_first;

	pthread_mutex_lock(&delay->lock);
	if (delay->take_noted)
		delay->take_noted(delay->notes);
	complete_ns = take_announced(delay, io);
	if (delay->constant_ns == DELAY_NONE) {
		if (complete_ns == DELAY_NONE)
			complete_ns = model(delay, io->op, io->offset_bytes, io->length_bytes, io->arrived_ns);
		count(delay, io);
	} else {
		complete_ns = io->arrived_ns + delay->constant_ns;
		io->constant = true;
	}
	if (is_blocking(io->op) && !delay->blocking++)
		delay->blocking_since_ns = io->arrived_ns;
	io->complete_ns = complete_ns;
	io->due_ns = io->send_ns = complete_ns - overhead_ns(delay, io);
	if (!io->constant)
		io->send_ns -= delay->later_ns[kind_of(io->op)];
	is_first = !delay->replies.count || io->send_ns < delay->replies.entries[0].due_ns;
	push_reply(delay, io);
	if (is_first)
		wake_sender(delay);
	pthread_mutex_unlock(&delay->lock);
}

void delay_ready(struct delay *delay, struct emulated_io *io)
{
	pthread_mutex_lock(&delay->lock);
	io->ready = true;
	if (io->overdue) {
		push_reply(delay, io);
		wake_sender(delay);
	}
	pthread_mutex_unlock(&delay->lock);
}

void delay_set_constant(struct delay *delay, int64_t constant_ns)
{
	pthread_mutex_lock(&delay->lock);
	delay->constant_ns = constant_ns;
	pthread_mutex_unlock(&delay->lock);
}

void delay_set_overheads(struct delay *delay, const struct overhead overheads[KIND_COUNT])
{
	pthread_mutex_lock(&delay->lock);
	memcpy(delay->overheads, overheads, sizeof(delay->overheads));
	pthread_mutex_unlock(&delay->lock);
}

void delay_get_return(struct delay *delay, int64_t return_ns[KIND_COUNT])
{
	pthread_mutex_lock(&delay->lock);
	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		return_ns[kind] = delay->known_ns[kind] < 0 ? -delay->known_ns[kind] : 0;
	pthread_mutex_unlock(&delay->lock);
}

/* ---- status ---- */

void delay_write_status(struct delay *delay, FILE *out)
{
	struct delay_counts counts;
	struct drive *drive = delay->drive;
	double fill_bytes, temperature_c;
	unsigned in_flight;
	bool throttled;

	pthread_mutex_lock(&delay->lock);
	counts = delay->counts;
	in_flight = delay->replies.count;
	fill_bytes = drive->cache_fill_bytes;
	temperature_c = drive->temperature_c;
	throttled = drive->throttled;
	pthread_mutex_unlock(&delay->lock);
	/* An emulated drive has no zones. */
	for (unsigned op = 0; op <= OP_WRITE_ZEROES; op++)
		fprintf(out, "\"%s_ios\": %" PRIu64 ", \"%s_bytes\": %" PRIu64 ", ", op_names[op], counts.ios[op],
			op_names[op], counts.bytes[op]);
	fprintf(out,
		"\"in_flight\": %u, \"late_ios\": %" PRIu64 ", \"late_ns\": %" PRId64 ", \"latest_ns\": %" PRId64
		", \"blocking_ns\": %" PRId64 ", \"beside_blocking\": %" PRIu64 ", \"cache_fill_bytes\": %.0f"
		", \"temperature_c\": %.2f, \"throttled\": %s",
		in_flight, counts.late_ios, counts.late_ns, counts.latest_ns, counts.blocking_ns, counts.beside_blocking,
		fill_bytes, temperature_c, throttled ? "true" : "false");
}

void delay_write_state(struct delay *delay, FILE *out)
{
	pthread_mutex_lock(&delay->lock);
	drive_write_state(delay->drive, out);
	pthread_mutex_unlock(&delay->lock);
}

void delay_end(struct delay *delay)
{
	int64_t now_ns = monotonic_ns() - delay->start_ns;

	pthread_mutex_lock(&delay->lock);
	while (delay->modeled.count) {
		struct due io = due_heap_pop(&delay->modeled);

		drive_complete(delay->drive, io.due_ns, io.op);
		if (io.due_ns > now_ns)
			now_ns = io.due_ns;
	}
	drive_end(delay->drive, now_ns);
	pthread_mutex_unlock(&delay->lock);
}
