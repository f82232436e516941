/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One capture, from attaching the programs to the end block. */
#pragma once

#include "drives/drives.h"
#include "drives/ledger.h"
#include "programs/programs.h"
#include "programs/synthetic.h"
#include "rows/drain.h"
#include "rows/live.h"
#include "rows/names.h"
#include "rows/outbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session_options {
	const char *kind; /* of programs; NULL: the best that loads */
	bool without_io_start;
	bool without_uses; /* of pages of the page cache */
	bool volumes; /* one is on the drives */
	uint32_t ring_bytes;
	bool files;
	bool without_names;
	bool own;
	int32_t *own_pids;
	size_t own_pid_count;
	bool own_only;
	const char *own_cgroup;
	struct drive drives[MAX_DEVICES];
	uint32_t drive_count;
	uint64_t synthetic_per_second; /* 0: none; see synthetic.h */
	uint64_t synthetic_count;
	uint32_t live_ms; /* interval of the live view; 0: none */
	int rows_fd; /* the spool: layout, rows, notes and the end block */
	int reserve_fd; /* -1: none; see outbox.h */
};

struct session {
	struct session_options *options;
	int signal_fd;
	struct programs programs;
	struct outbox outbox;
	struct names names;
	struct drain drain;
	struct ledger ledger;
	struct live *live; /* NULL without a live view */
	struct synthetic synthetic;
	uint64_t epoch_ns;
	uint64_t stopped_ns;
	uint64_t in_flight_at_end;
	uint64_t unseen_at_end; /* completed before the end without a completion event */
	uint64_t not_own_at_end; /* the same, of other processes, if only the workload's I/O is recorded */
	uint64_t queued_at_end;
};

/* Loads the programs, prints their kind as JSON on stdout, and unloads them. Returns the exit code. */
int session_probe(struct session_options *options);

/* Captures until stdin ends, a signal arrives or the disk is full; status goes to stdout. Returns the exit code. */
int session_run(struct session_options *options);
