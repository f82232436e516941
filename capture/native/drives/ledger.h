/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The counts of the BPF programs, per CPU. */
#pragma once

#include "records.h"

#include <stdint.h>
#include <stdio.h>

struct ledger {
	int cpu_count;
	struct cpu_ledger *cpus;
};

/* Allocates for all possible CPUs. Returns 0 or a negative errno. */
int ledger_init(struct ledger *ledger);
void ledger_deinit(struct ledger *ledger);

/* Reads the map. Returns 0 or a negative errno. */
int ledger_read(struct ledger *ledger, int map_fd);

uint64_t ledger_lost(const struct ledger *ledger);

/* Writes the members "lost": {...}, "ledger": {...}; times relative to epoch_ns. */
void ledger_print(const struct ledger *ledger, FILE *file, uint64_t epoch_ns);
