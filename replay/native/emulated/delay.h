/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Real-time completion of I/Os at the times of the drive model. A back end reads requests and calls delay_submit(); its
 * reply function is called when a reply is due, by the thread of delay_start(), or by a thread of the back end's own
 * that calls delay_send_due(). Replies leave earlier by the calibrated overhead of the way between a program and this
 * process, and by what the completions of the last I/Os took longer than that.
 */
#pragma once

#include <linux/capability.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "codes.h"
#include "issue_times.h"
#include "simulated/drive_model.h"
#include "simulated/due_heap.h"

#define DELAY_SLOTS 512      /* I/Os in flight */
#define DELAY_FILE_SLOTS 128 /* with an image in a file, since each needs a buffer */
#define DELAY_NONE (-1)

/* I/Os that take a way of their own between the program and this process. */
enum io_kind {
	KIND_READ,
	KIND_WRITE,
	KIND_BLOCKING, /* flushes, and discards */
	KIND_COUNT,
};

/* The overhead of an I/O, between program and this process and back. */
struct overhead {
	int64_t io_ns;
	double ns_per_byte;
};

struct emulated_io {
	uint64_t unique; /* of the back end */
	enum trace_op op;
	int64_t offset_bytes, length_bytes;
	int64_t arrived_ns; /* when it reached this process; after delay_submit(), when the kernel issued it if that is known */
	int64_t complete_ns; /* for the program: by the model, or the constant time of a calibration */
	int64_t due_ns;      /* of its reply: the same less the calibrated overhead */
	bool constant;
	int64_t send_ns;
	bool untimed_data; /* a write of the calibration: its data is dropped */
	char *buffer;      /* with an image in a file */
	char *data;        /* of a write */
	int error;         /* 0 or a negative errno */
	bool ready;        /* its data is transferred */
	bool overdue;      /* was due before its data was transferred */
};

/* An I/O that the kernel issued and that has not arrived. */
struct announced {
	int64_t offset_bytes, issued_ns;
	int64_t complete_ns; /* by the model; DELAY_NONE: of a calibration */
	enum trace_op op;
};

/* A reply that left, until the kernel completes its I/O. */
struct sent {
	int64_t offset_bytes, sent_ns, complete_ns;
	enum trace_op op;
	bool constant, complete;
};

struct delay_counts {
	uint64_t ios[OP_COUNT], bytes[OP_COUNT];
	uint64_t late_ios;
	int64_t late_ns, latest_ns; /* sum and maximum of late replies */
	int64_t blocking_ns;        /* flushes and discards in flight */
	uint64_t beside_blocking;   /* reads and writes that arrived meanwhile */
};

struct delay {
	pthread_mutex_t lock;
	pthread_cond_t slot_free;
	struct drive *drive;
	int64_t start_ns;
	int64_t latest_ns; /* arrival of an I/O in the model, whose time does not go back */
	int64_t constant_ns; /* of each I/O in place of the model, for a calibration; else DELAY_NONE */
	struct overhead overheads[KIND_COUNT];
	int64_t known_ns[KIND_COUNT]; /* from completion for the program to that of the kernel, calibrated; negative */
	int64_t later_ns[KIND_COUNT]; /* what completions take longer than that */
	struct sent sent[DELAY_SLOTS];
	unsigned sent_count; /* in all; the last ones are there */
	struct emulated_io ios[DELAY_SLOTS];
	uint32_t free_slots[DELAY_SLOTS];
	unsigned slots, free_count;
	struct announced announced[DELAY_SLOTS];
	unsigned announced_count;
	void (*take_noted)(void *notes); /* calls delay_noted() for each new one; NULL: nobody knows them */
	void *notes;
	struct due_heap modeled; /* in flight in the model */
	struct due_heap replies;
	uint64_t order;
	unsigned blocking; /* flushes and discards in flight */
	int64_t blocking_since_ns;
	struct delay_counts counts;

	_Atomic uint32_t generation; /* changes with the first reply */
	atomic_bool sleeping, stopping;
	_Atomic int64_t oldest_ns; /* since when a reply is overdue; 0: none is */
	pthread_t sender;
	bool has_sender;
	void (*reply)(void *backend, const struct emulated_io *io);
	void (*wake)(void *backend); /* NULL: the thread of delay_start() sends */
	void *backend;
};

/* drive: initialized. Returns 0 or a negative errno. */
int delay_init(struct delay *delay, struct drive *drive, unsigned slots);
void delay_deinit(struct delay *delay);

/* Of the threads that serve I/Os: for their real-time priority. */
#define SERVING_CAPABILITIES (1ull << CAP_SYS_NICE)

/* Starts a thread that sends. Returns 0 or a negative errno. */
int delay_start(struct delay *delay, void (*reply)(void *backend, const struct emulated_io *io), void *backend);

/* Sends all replies that are outstanding, and ends the thread. */
void delay_stop(struct delay *delay);

/* The time before a reply is due in which a thread that sends does not sleep, because a wake-up takes time. */
#define DELAY_SPIN_NS 50000ll

/* Sends the replies that are due. Returns when the next one is, on CLOCK_MONOTONIC; INT64_MAX: none is outstanding. */
int64_t delay_send_due(struct delay *delay);

/* A free slot; waits until there is one. */
struct emulated_io *delay_take(struct delay *delay);
void delay_give_back(struct delay *delay, const struct emulated_io *io);
/* io->ready: whether its data is transferred already; else call delay_ready() after its transfer. */
void delay_submit(struct delay *delay, struct emulated_io *io);
void delay_ready(struct delay *delay, struct emulated_io *io);

/*
 * Before I/Os are submitted: take_noted() is called with each of them, and calls delay_noted() for what the kernel issued
 * and completed up to then, in its order. The model knows an I/O from its issue on, before it arrives here.
 */
void delay_set_noted(struct delay *delay, void (*take_noted)(void *notes), void *notes);
void delay_noted(struct delay *delay, const struct noted *noted);

/* Begins or, with DELAY_NONE, ends a calibration. Its I/Os are neither counted nor modeled. */
void delay_set_constant(struct delay *delay, int64_t constant_ns);
void delay_set_overheads(struct delay *delay, const struct overhead overheads[KIND_COUNT]);
/* After a calibration: from the kernel's completion to that for the program; 0: completions are not noted. */
void delay_get_return(struct delay *delay, int64_t return_ns[KIND_COUNT]);

/* Counts, I/Os in flight and the drive's cache and temperature, as members of a JSON object. */
void delay_write_status(struct delay *delay, FILE *out);
/* The state of the drive as a JSON object. */
void delay_write_state(struct delay *delay, FILE *out);
/* With nothing in flight any more: ends the run of the drive. */
void delay_end(struct delay *delay);
