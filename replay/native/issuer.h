/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The way from a row to the kernel and back. Two of them: io_uring, and one
 * that completes everything at once and so measures the engine alone.
 */
#ifndef BLKREEL_ISSUER_H
#define BLKREEL_ISSUER_H

#include <stdbool.h>
#include <stdint.h>

#include "payload.h"
#include "target.h"

/*
 * Rows that go into the kernel with one call. From three on, io_uring holds
 * them back until the last is prepared: the first would be issued later than
 * its stamp says, neighbours would be merged into one I/O that is not in the
 * plan, and the drive would idle meanwhile (16 rows: a fifth less throughput).
 */
#define BATCH_ROWS 2u

/* Rows that are taken back at once. */
#define REAP_ROWS 64u

/* One row being carried out. */
struct io {
	int64_t due_ns;
	int64_t submit_ns;
	int64_t offset_bytes;
	int64_t length_bytes;
	int64_t source_row;
	int64_t captured_ns;
	int64_t captured_latency_ns;
	uint64_t ordinal; /* in the plan of its lane */
	int32_t flags;
	int32_t burst;
	int32_t status;
	int16_t stream;
	int16_t cpu; /* that it was submitted from */
	int16_t target;
	uint16_t lane;
	uint32_t requests; /* of the drive's queue that it takes */
	int8_t op;
	uint8_t pending; /* completions still to come: two for a write behind its flush */
};

struct issuer {
	/* Prepares a row; it goes out with the next submit. At most BATCH_ROWS are prepared at a time. */
	void (*queue)(struct issuer *issuer, struct io *io, uint32_t slot);
	/*
	 * Submits what is prepared. With wait_ns > 0 it then sleeps until a completion is there or the
	 * time has passed. Returns 0 or a negative errno.
	 */
	int (*submit)(struct issuer *issuer, int64_t wait_ns);
	/* Takes completions of up to `room` rows, without sleeping: their slots, io->status set. */
	unsigned (*reap)(struct issuer *issuer, struct io *ios, uint32_t *slots, unsigned room);
	/* What of the kernel's help is in use, as a JSON object. */
	const char *(*features)(struct issuer *issuer);
	/* Lets go of the target, once nothing is outstanding. */
	void (*release)(struct issuer *issuer);
};

struct issuer_options {
	const struct target *targets;
	unsigned target_count;
	struct payload *payload;
	unsigned depth;
	bool polled;   /* look for completions at the drive: every target must be able to */
	bool plain;    /* io_uring's oldest ways only: what an older kernel would leave us */
	int helper_cpu_besides; /* kernel threads that help stay off this CPU; -1: anywhere */
	int64_t null_fail_row; /* the null target fails from this source row on; -1: never */
	int null_fail_errno;
};

/* Both return an issuer that lives until the process ends, or NULL having said why on stderr. */
struct issuer *uring_issuer(const struct issuer_options *options);
struct issuer *null_issuer(const struct issuer_options *options);

#endif
