/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "report.h"
#include "clock.h"
#include "text.h"

#include <inttypes.h>

#define MINOR_BITS 20

void report_attached(const struct decoded *decoded, FILE *file)
{
	fprintf(file, "{\"note\": \"attached\", \"epoch_ns\": %" PRIu64 ", \"realtime_ns\": %" PRIu64 "}",
		decoded->rows.epoch_ns, clock_ns(CLOCK_REALTIME));
}

void report_progress(const struct decoded *decoded, FILE *file)
{
	fprintf(file, "{\"note\": \"progress\", \"events\": %" PRIu64 ", \"lost\": %" PRIu64 "}", decoded->rows.count,
		decoded->lost);
}

static uint64_t lost_on(const struct decoded *decoded, uint32_t cpu, size_t from)
{
	uint64_t total = 0;

	for (size_t i = from; i < decoded->loss_count; i++)
		if (decoded->losses[i].cpu == cpu)
			total += decoded->losses[i].count;
	return total;
}

static bool cpu_before(const struct decoded *decoded, size_t at)
{
	for (size_t i = 0; i < at; i++)
		if (decoded->losses[i].cpu == decoded->losses[at].cpu)
			return true;
	return false;
}

static void report_lost(const struct decoded *decoded, FILE *file)
{
	const char *comma = "";

	fprintf(file, "\"lost\": {\"unit\": \"events\", \"total\": %" PRIu64 ", \"per_cpu\": {", decoded->lost);
	for (size_t i = 0; i < decoded->loss_count; i++) {
		if (cpu_before(decoded, i))
			continue;
		fprintf(file, "%s\"%u\": %" PRIu64, comma, decoded->losses[i].cpu,
			lost_on(decoded, decoded->losses[i].cpu, i));
		comma = ", ";
	}
	fputs("}, \"intervals\": [", file);
	for (size_t i = 0; i < decoded->loss_count; i++) {
		const struct loss *loss = &decoded->losses[i];

		fprintf(file, "%s{\"cpu\": %u, \"first_ns\": %" PRId64 ", \"last_ns\": %" PRId64 ", \"count\": %" PRIu64 "}",
			i ? ", " : "", loss->cpu,
			(int64_t)((loss->first_ns ? loss->first_ns : decoded->rows.epoch_ns) - decoded->rows.epoch_ns),
			(int64_t)(loss->last_ns - decoded->rows.epoch_ns), loss->count);
	}
	fputs("]}", file);
}

/* Keys as in the capture helper's ledger; null if events do not have it. */
static void report_ledger(const struct pair_counts *counts, FILE *file)
{
	fprintf(file, "\"ledger\": {\"reused\": %" PRIu64 ", \"unmatched\": %" PRIu64 ", \"in_flight_at_start\": %" PRIu64
		", \"unissued\": %" PRIu64 ", \"empty_flushes\": %" PRIu64 ", \"issued_again\": %" PRIu64
		", \"requeued\": %" PRIu64 ", \"merged\": %" PRIu64 ", \"other_ops\": %" PRIu64
		", \"out_of_range\": null, \"impossible_extents\": %" PRIu64 "}",
		counts->unseen, counts->unmatched, counts->in_flight_at_start, counts->unissued, counts->empty_flushes,
		counts->issued_again, counts->requeued, counts->merged, counts->other_ops, counts->impossible_extents);
}

static void report_drive(const struct pair_device *device, FILE *file)
{
	fprintf(file, "{\"device\": \"%u:%u\", \"diskstats\": null, \"seen\": ", device->number >> MINOR_BITS,
		device->number & ((1u << MINOR_BITS) - 1));
	print_json_counted(file, device->seen);
	fprintf(file, ", \"queued\": %" PRIu64 ", \"issued\": %" PRIu64 ", \"completed\": %" PRIu64 "}",
		device->queued, device->issued, device->completed);
}

/* Properties of the input streams. */
static void report_stream(const struct decoded *decoded, FILE *file)
{
	const struct pair_counts *counts = &decoded->pairing.counts;
	uint64_t events = 0, cut_bytes = 0;
	size_t unnumbered = 0;

	for (size_t i = 0; i < decoded->merge.input_count; i++) {
		events += decoded->merge.inputs[i].events;
		cut_bytes += decoded->merge.inputs[i].cut_bytes;
		unnumbered += decoded->merge.inputs[i].sequences_mixed;
	}
	fprintf(file, ", \"stream\": {\"events\": %" PRIu64 ", \"cut_bytes\": %" PRIu64 ", \"unnumbered\": %zu"
		", \"backward_steps\": %" PRIu64 ", \"from_issuer\": %" PRIu64 ", \"remaps\": %" PRIu64
		", \"not_wanted\": %" PRIu64 ", \"messages\": %" PRIu64 ", \"clock_pair\": ", events, cut_bytes, unnumbered,
		decoded->merge.backward_steps, counts->from_issuer, counts->remaps, counts->not_wanted, decoded->messages);
	if (decoded->clock_pair.realtime_ns)
		fprintf(file, "{\"monotonic_ns\": %" PRIu64 ", \"realtime_ns\": %" PRIu64 "}",
			decoded->clock_pair.monotonic_ns, decoded->clock_pair.realtime_ns);
	else
		fputs("null", file);
	fputs(", \"unnamed\": [", file);
	for (size_t i = 0; i < decoded->threads.unnamed_count; i++)
		fprintf(file, "%s%d", i ? ", " : "", decoded->threads.unnamed[i]);
	fputs("]}", file);
}

void report_end(const struct decoded *decoded, FILE *file, bool with_note)
{
	const struct pairing *pairing = &decoded->pairing;
	uint64_t stopped_ns = pairing->stopped_ns == UINT64_MAX ? decoded->merge.newest_ns : pairing->stopped_ns;

	fprintf(file, "{%s\"events\": %" PRIu64 ", \"epoch_ns\": %" PRIu64 ", \"stopped_ns\": %" PRId64
		", \"monotonic_ns\": %" PRIu64 ", \"realtime_ns\": %" PRIu64 ", \"cpu_ns\": %" PRIu64 ", ",
		with_note ? "\"note\": \"end\", " : "", decoded->rows.count, decoded->rows.epoch_ns,
		(int64_t)(stopped_ns - decoded->rows.epoch_ns), monotonic_ns(),
		clock_ns(CLOCK_REALTIME), own_cpu_ns());
	report_lost(decoded, file);
	fputs(", ", file);
	report_ledger(&pairing->counts, file);
	fprintf(file, ", \"recursion_misses\": null, \"queued_at_end\": null, \"in_flight_at_end\": %" PRIu64
		", \"drives\": [", pairing->counts.in_flight_at_end);
	for (size_t i = 0; i < pairing->devices.count; i++) {
		fputs(i ? ", " : "", file);
		report_drive(&pairing->devices.items[i], file);
	}
	fputs("], \"ios\": ", file);
	print_json_numbers(file, decoded->rows.ios, OP_COUNT);
	fputs(", \"bytes\": ", file);
	print_json_numbers(file, decoded->rows.bytes, OP_COUNT);
	report_stream(decoded, file);
	if (decoded->rows.error)
		fprintf(file, ", \"unwritten_rows\": %" PRIu64 ", \"write_error\": %d", decoded->rows.unwritten,
			-decoded->rows.error);
	fputs("}", file);
}
