/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Measures what this machine adds to each I/O of an emulated drive, and the most that it reaches. It issues real I/Os
 * to the device, which the server completes after a constant time; the data of its writes is dropped.
 */
#pragma once

#include <stdint.h>

#include "delay.h"

#define CHECK_ASKED_NS 200000ll

/* Of 4 KiB I/Os one at a time that are to take CHECK_ASKED_NS. */
struct reached {
	int64_t p50_ns, p99_ns;
};

struct calibration {
	struct overhead overheads[KIND_COUNT];
	int64_t return_ns[KIND_COUNT];          /* of delay_get_return() */
	struct reached check[KIND_COUNT];       /* with the overhead compensated */
	double read_iops, write_iops;           /* 4 KiB, 32 in flight */
	double read_bandwidth, write_bandwidth; /* 512 KiB, 8 in flight, in bytes per second */
};

struct calibration_target {
	int fd; /* of the device, with O_DIRECT */
	int64_t size_bytes;
	const char *mark; /* CALIBRATION_MARK_BYTES */
	struct delay *delay;
};

/* Measures all, and compensates the overhead from then on; or the check alone. Returns 0 or a negative errno. */
int calibrate(const struct calibration_target *target, bool only_check, struct calibration *calibration);
