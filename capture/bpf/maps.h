/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by the programs: the configuration, the ring, and the ledger. */
#pragma once

#include "kernel.h"
#include "records.h"

#include <bpf/bpf_helpers.h>

const volatile struct capture_config config SEC(".rodata.config") = {};
struct capture_control control SEC(".data.control") = {};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_ledger);
} ledger SEC(".maps");

/* An array: it costs a third of a hash and is never full. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

static __always_inline struct cpu_ledger *own_ledger(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&ledger, &zero);
}

#define COUNT(what)                                                      \
	do {                                                             \
		struct cpu_ledger *own__ = own_ledger();                 \
		if (own__)                                               \
			__sync_fetch_and_add(&own__->what, 1);           \
	} while (0)
