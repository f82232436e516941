/* SPDX-License-Identifier: GPL-2.0-or-later */
/* From inputs to rows: one run of the decoder. */
#ifndef BLKREEL_BLKTRACE_DECODE_H
#define BLKREEL_BLKTRACE_DECODE_H

#include "blktrace_report.h"

struct decode_options {
	int rows_fd;
	int reserve_fd; /* -1: none */
	bool live;
	uint64_t late_ns; /* live: how long an event may be on its way here after its time was read */
	uint64_t epoch_ns; /* time 0 of the rows; 0: the first event's time */
	uint64_t stopped_ns; /* 0: at the end */
	bool silent_losses;
	bool only_these; /* other devices' events are not wanted */
	struct pair_device devices[MAX_PAIR_DEVICES];
	size_t device_count;
	char **paths;
	size_t path_count;
};

/* Returns 0, or -1 after a line on stderr: what is wrong; what mends it. */
int decode(const struct decode_options *options);

#endif
