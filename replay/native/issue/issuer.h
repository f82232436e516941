/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The interface between the issuing loop and a target: io_uring, a simulated drive, or the nil target. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"
#include "target/payload.h"
#include "target/target.h"

/*
 * Rows per io_uring call. From three on the kernel plugs: the first row is issued after its stamp, neighbors are
 * merged, and the drive idles meanwhile (16 rows: 20 % less throughput).
 */
#define BATCH_ROWS 2u

/* Completions that are reaped at once. */
#define REAP_ROWS 64u

/* A row in flight. */
struct io {
	union {
		struct plan_row row;
		struct {
			PLAN_ROW_FIELDS
		};
	};
	int64_t submit_ns;
	int64_t host_delay_ns; /* how much earlier it would have been issued without delays of the host */
	uint64_t ordinal; /* in the plan of its lane */
	int32_t status;
	int16_t cpu; /* that submitted it */
	uint16_t lane;
	uint32_t requests; /* it occupies in the drive's queue */
	bool unequal; /* a compare whose blocks differ from its data */
	uint8_t pending; /* completions to come: two for a write with a preflush */
};

struct issuer {
	/* Prepares a row for the next submit. At most BATCH_ROWS are prepared at a time. */
	void (*queue)(struct issuer *issuer, struct io *io, uint32_t slot);
	/*
	 * Submits the prepared rows, then waits up to wait_ns for a completion. Returns 0 or a negative errno. -EAGAIN:
	 * the kernel has no room for all of them now; the others are submitted by the next submit or reap.
	 */
	int (*submit)(struct issuer *issuer, int64_t wait_ns);
	/* After -EAGAIN: whether the kernel has taken a part of the row. NULL: submit never returns -EAGAIN. */
	bool (*has_taken)(struct issuer *issuer, uint32_t slot);
	/* Reaps up to `room` rows without sleeping: stores their slots, sets io->status. */
	unsigned (*reap)(struct issuer *issuer, struct io *ios, uint32_t *slots, unsigned room);
	/* The kernel features in use, as a JSON object. */
	const char *(*features)(struct issuer *issuer);
	/* Called by the issuing thread with no I/O outstanding: closes the targets. May be NULL. */
	void (*release)(struct issuer *issuer);
	/* Frees the issuer, with no I/O outstanding. */
	void (*deinit)(struct issuer *issuer);
};

struct issuer_options {
	const struct target *targets;
	unsigned target_count;
	struct payload *payload;
	unsigned depth;
	bool polled;          /* polled completions (IOPOLL); every target supports them */
	bool plain;           /* no io_uring feature newer than Linux 5.11 */
	int avoid_cpu;        /* io_uring workers do not run on it; -1: on any */
};

/* These return NULL after an error message. */
struct issuer *uring_issuer(const struct issuer_options *options);
struct issuer *nil_issuer(const struct issuer_options *options);
