/* SPDX-License-Identifier: GPL-2.0-or-later */
/* From inputs to rows: one run of the decoder. */
#pragma once

#include "report.h"

struct decode_options {
	int rows_fd;
	int reserve_fd; /* -1: none */
	bool live;
	uint64_t late_ns; /* live: the longest delay of an event after its timestamp */
	uint64_t epoch_ns; /* time 0 of the rows; 0: the first event's time */
	uint64_t begun_ns; /* 0: with the first event */
	uint64_t stopped_ns; /* 0: at the end */
	bool silent_losses;
	bool only_these; /* ignore events of other devices */
	struct pair_devices devices;
	char **paths;
	size_t path_count;
};

/* Takes options->devices over. Returns 0, or -1 after report_error(). */
int decode(struct decode_options *options);
