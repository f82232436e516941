/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A description for tests: a drive of 1 GiB in granules of 16 KiB, with four channels. */
#pragma once

#include "simulated/drive_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* `changes` are appended lines. */
static inline void make_drive(struct drive *drive, const char *changes)
{
	static char text[40000];
	FILE *file;
	char why[96] = "";

	drive_deinit(drive);
	snprintf(text, sizeof(text),
		 "capacity_bytes 1073741824\nread_latency_ns 80000\nwrite_latency_ns 20000\nflush_latency_ns 100000\n"
		 "discard_latency_ns 50000\ndiscard_ns_per_gb 1000000\nread_bandwidth 4e9\nwrite_bandwidth 1e9\n"
		 "channels 4\ncache_bytes 0\ncache_bandwidth 2e9\ncache_drain 1e6\nrandom_write_bandwidth 1e9\n"
		 "random_write_decline_bytes 1000000\nread_slowdown 1\nstall_every_ns 0\nstall_for_ns 0\nambient_c 20\n"
		 "heating_c_per_w 10\nthermal_time_ns 1e10\nthrottle_at_c 1e9\nthrottle_until_c 1e9\n"
		 "throttle_factor 0.5\nidle_w 0\nread_w 5\nwrite_w 8\njitter 0\nseed 0\n"
		 "link_bandwidth 0\ncommands 0\nflush_blocks 0\nprogram_ns 0\ncache_program_ns 0\ncache_fold 0\n"
		 "iops_limit 0\niops_credit 0\nrate_limit 0\nrate_credit_bytes 0\n"
		 "granule_bytes 16384\ntemperature_c 20\n"
		 "read_spread_0 1\nread_spread_1 1\nread_spread_2 1\nread_spread_3 1\nread_spread_4 1\nread_spread_5 1\n"
		 "read_spread_6 1\nwrite_spread_0 1\nwrite_spread_1 1\nwrite_spread_2 1\nwrite_spread_3 1\n"
		 "write_spread_4 1\nwrite_spread_5 1\nwrite_spread_6 1\n%s", changes);
	file = fmemopen(text, strlen(text), "r");
	if (!drive_read(drive, file, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		exit(1);
	}
	fclose(file);
	CHECK(!drive_init(drive));
}
