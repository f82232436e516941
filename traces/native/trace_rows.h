/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The columns of a trace in a spool, as X(type, name) in their order. */
#pragma once

#include "blocks.h"

#define ROWS_PER_BLOCK 16384
#define SECTOR_BYTES 512 /* of the kernel, whatever the drive's block size */

#define TRACE_COLUMNS(X)                                                                                      \
	X(int64_t, submit_ns) X(int64_t, latency_ns) X(int64_t, queue_ns) X(int64_t, offset_bytes)            \
	X(int64_t, length_bytes) X(int32_t, flags) X(int32_t, tid) X(int16_t, device) X(int16_t, cpu)         \
	X(int16_t, status) X(int8_t, op)
