/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Synthetic records, through the same path as real ones: for tests and measurements. */
#pragma once

#include "emit.h"

#define SYNTHETIC_PLACES 8192 /* 32 MiB of 4K blocks in sequence */

static long emit_one(__u32 index, void *context)
{
	struct synthetic_args *args = context;
	__u64 now_ns = bpf_ktime_get_ns();
	struct slot slot = {
		.start_ns = now_ns - 300,
		.submit_ns = now_ns - 200,
		.sector = (args->first + index) % SYNTHETIC_PLACES * 8,
		.length_bytes = 4096,
		.tid = 1,
		.times = TIMES_UNKNOWN,
	};

	emit(&slot, now_ns, now_ns);
	return 0;
}

/* Loaded only with --synthetic. */
SEC("?syscall")
int synthetic(struct synthetic_args *args)
{
	struct synthetic_args copy = { .first = args->first, .count = args->count };

	bpf_loop(copy.count, emit_one, &copy, 0);
	return 0;
}
