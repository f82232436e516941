/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "totals.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int64_t totals_sum(const int64_t *by_op)
{
	int64_t sum = 0;

	for (int op = 0; op < OP_COUNT; op++)
		sum += by_op[op];
	return sum;
}

/* Kinds that did not occur are left out. */
static void write_counts(FILE *out, const char *key, const char *const *names, const int64_t *counts, int first,
			 int count)
{
	const char *comma = "";

	fprintf(out, "\"%s\": {", key);
	for (int i = first; i < count; i++) {
		if (!counts[i])
			continue;
		fprintf(out, "%s\"%s\": %" PRId64, comma, names[i], counts[i]);
		comma = ", ";
	}
	fputs("}, ", out);
}

static void write_string(FILE *out, const char *key, const char *text)
{
	fprintf(out, "\"%s\": ", key);
	if (!text) {
		fputs("null, ", out);
		return;
	}
	fputc('"', out);
	for (; *text; text++) {
		if ((unsigned char)*text < 0x20 || *text == '"' || *text == '\\')
			fprintf(out, "\\u%04x", (unsigned char)*text);
		else
			fputc(*text, out);
	}
	fputs("\", ", out);
}

static void write_number(FILE *out, const char *key, int64_t value)
{
	fprintf(out, "\"%s\": %" PRId64 ", ", key, value);
}

static void write_flag(FILE *out, const char *key, bool value)
{
	fprintf(out, "\"%s\": %s, ", key, value ? "true" : "false");
}

char *totals_json(const struct totals *t, const struct circumstances *how)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputc('{', out);
	write_number(out, "planned_ops", how->planned);
	write_number(out, "issued_ops", totals_sum(t->issued));
	write_number(out, "completed_ops", totals_sum(t->completed));
	write_number(out, "error_ops", t->errors);
	write_number(out, "abandoned_ops", t->abandoned);
	write_counts(out, "issued", op_names, t->issued, 0, OP_COUNT);
	write_counts(out, "completed", op_names, t->completed, 0, OP_COUNT);
	write_counts(out, "bytes", op_names, t->bytes, 0, OP_COUNT);
	write_counts(out, "altered", fidelity_names, t->altered, ALTERED_FUA, DROPPED);
	write_counts(out, "dropped", op_names, t->dropped, 0, OP_COUNT);
	write_number(out, "split_ops", t->split);
	write_number(out, "merged_ops", t->merged);
	write_number(out, "queue_full_ops", t->queue_full);
	write_number(out, "shared_payload_ops", t->shared_payload);
	write_number(out, "underruns", t->underruns);
	write_number(out, "record_stalls", t->record_stalls);
	write_number(out, "involuntary_switches", t->involuntary_switches);
	write_number(out, "max_outstanding", t->max_outstanding);
	write_number(out, "min_lateness_ns", t->min_lateness_ns);
	write_number(out, "max_lateness_ns", t->max_lateness_ns);
	write_number(out, "max_host_lateness_ns", t->max_host_lateness_ns);
	write_number(out, "plan_ns", t->plan_ns);
	write_number(out, "wall_ns", t->wall_ns);
	write_number(out, "start_monotonic_ns", t->start_monotonic_ns);
	write_number(out, "start_realtime_ns", t->start_realtime_ns);
	if (t->first_error) {
		write_number(out, "first_error", t->first_error);
		write_number(out, "first_error_row", t->first_error_row);
	}
	write_number(out, "depth", how->depth);
	write_number(out, "cpu", how->cpu);
	fprintf(out, "\"seed\": %" PRIu64 ", ", how->seed);
	write_flag(out, "memory_locked", how->memory_locked);
	write_flag(out, "realtime", how->realtime);
	write_flag(out, "direct", how->target->direct);
	write_number(out, "target_bytes", how->target->size_bytes);
	write_number(out, "logical_block_bytes", how->target->logical_block_bytes);
	fprintf(out, "\"features\": %s, ", how->features);
	fputs("\"watch\": ", out);
	watch_write_json(out, how->watches, how->watch_count);
	fputs(", ", out);
	write_string(out, "stopped", how->stopped);
	fputs("\"engine\": 1}", out);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}
