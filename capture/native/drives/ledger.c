/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "ledger.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

/* The counts that are summed over the CPUs. */
static const struct {
	const char *name;
	size_t offset;
} sums[] = {
#define SUM(field) { #field, offsetof(struct cpu_ledger, field) }
	SUM(reused),	    SUM(unmatched), SUM(in_flight_at_start), SUM(unissued),  SUM(empty_flushes),
	SUM(requeued),	    SUM(merged),    SUM(other_ops),	     SUM(out_of_range),
	SUM(failed_over),   SUM(uses_lost), SUM(wakes_lost),	     SUM(not_own),   SUM(parts),
	SUM(commands_unseen), SUM(computed_ns), SUM(uses_mapped),
#undef SUM
};

int ledger_init(struct ledger *ledger)
{
	ledger->cpu_count = libbpf_num_possible_cpus();
	if (ledger->cpu_count < 0)
		return ledger->cpu_count;
	ledger->cpus = calloc((size_t)ledger->cpu_count, sizeof(*ledger->cpus));
	return ledger->cpus ? 0 : -ENOMEM;
}

void ledger_deinit(struct ledger *ledger)
{
	free(ledger->cpus);
	ledger->cpus = NULL;
}

int ledger_read(struct ledger *ledger, int map_fd)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(map_fd, &zero, ledger->cpus);
}

uint64_t ledger_lost(const struct ledger *ledger)
{
	uint64_t total = 0;

	for (int cpu = 0; cpu < ledger->cpu_count; cpu++)
		total += ledger->cpus[cpu].lost;
	return total;
}

static uint64_t sum_at(const struct ledger *ledger, size_t offset)
{
	uint64_t total = 0;

	for (int cpu = 0; cpu < ledger->cpu_count; cpu++)
		total += *(const uint64_t *)((const char *)&ledger->cpus[cpu] + offset);
	return total;
}

static uint64_t longest_computed_ns(const struct ledger *ledger)
{
	uint64_t longest_ns = 0;

	for (int cpu = 0; cpu < ledger->cpu_count; cpu++)
		if (ledger->cpus[cpu].longest_computed_ns > longest_ns)
			longest_ns = ledger->cpus[cpu].longest_computed_ns;
	return longest_ns;
}

static void print_intervals(const struct ledger *ledger, FILE *file, uint64_t epoch_ns)
{
	const char *comma = "";

	for (int cpu = 0; cpu < ledger->cpu_count; cpu++) {
		const struct cpu_ledger *own = &ledger->cpus[cpu];

		for (uint64_t i = 0; i < own->interval_count && i < MAX_LOST_INTERVALS; i++) {
			const struct lost_interval *interval = &own->intervals[i];

			fprintf(file, "%s{\"cpu\": %d, \"first_ns\": %" PRId64 ", \"last_ns\": %" PRId64
				", \"count\": %" PRIu64 "}", comma, cpu, (int64_t)(interval->first_ns - epoch_ns),
				(int64_t)(interval->last_ns - epoch_ns), (uint64_t)interval->count);
			comma = ", ";
		}
	}
}

void ledger_print(const struct ledger *ledger, FILE *file, uint64_t epoch_ns)
{
	const char *comma = "";

	fprintf(file, "\"lost\": {\"total\": %" PRIu64 ", \"per_cpu\": {", ledger_lost(ledger));
	for (int cpu = 0; cpu < ledger->cpu_count; cpu++) {
		if (!ledger->cpus[cpu].lost)
			continue;
		fprintf(file, "%s\"%d\": %" PRIu64, comma, cpu, (uint64_t)ledger->cpus[cpu].lost);
		comma = ", ";
	}
	fputs("}, \"intervals\": [", file);
	print_intervals(ledger, file, epoch_ns);
	fputs("]}, \"ledger\": {", file);
	for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
		fprintf(file, "%s\"%s\": %" PRIu64, i ? ", " : "", sums[i].name, sum_at(ledger, sums[i].offset));
	fprintf(file, ", \"longest_computed_ns\": %" PRIu64 "}", longest_computed_ns(ledger));
}
