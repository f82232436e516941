/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One capture, from attach to the end block. */
#ifndef BLKREEL_SESSION_H
#define BLKREEL_SESSION_H

#include "drives.h"
#include "programs.h"

#include <stdint.h>

struct session_options {
	const char *kind;
	bool without_io_start;
	uint32_t ring_bytes;
	bool files;
	bool own;
	int32_t *own_pids;
	size_t own_pid_count;
	bool own_only;
	const char *own_cgroup;
	struct drive drives[MAX_DEVICES];
	size_t drive_count;
	uint64_t synthetic_per_second; /* 0: none; see synthetic.h */
	uint64_t synthetic_count;
	uint32_t live_ms; /* how often to tell what the drives do; 0: never */
	int rows_fd; /* the spool: layout, rows, notes and the end block */
	int reserve_fd; /* -1: none; see outbox.h */
};

/* Loads the programs, says which kind as JSON on stdout, and leaves. Returns the exit code. */
int session_probe(struct session_options *options);

/* Captures until stdin ends, a signal comes or the disk is full; stdout says how it goes. Returns the exit code. */
int session_run(struct session_options *options);

#endif
