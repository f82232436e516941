/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "totals.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "lane.h"
#include "run.h"
#include "simulated.h"

void totals_init(struct totals *totals)
{
	*totals = (struct totals){
		.min_lateness_ns = INT64_MAX,
		.max_lateness_ns = INT64_MIN,
		.max_host_lateness_ns = INT64_MIN,
	};
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static void add_counts(int64_t *counts, const int64_t *others, int count)
{
	for (int i = 0; i < count; i++)
		counts[i] += others[i];
}

void totals_add(struct totals *t, const struct totals *other)
{
	add_counts(t->issued, other->issued, OP_COUNT);
	add_counts(t->completed, other->completed, OP_COUNT);
	add_counts(t->dropped, other->dropped, OP_COUNT);
	add_counts(t->bytes, other->bytes, OP_COUNT);
	add_counts(t->altered, other->altered, FIDELITY_COUNT);
	add_counts(t->write_zeroes_of, other->write_zeroes_of, MAX_TARGETS);
	t->split += other->split;
	t->abandoned += other->abandoned;
	t->queue_full += other->queue_full;
	t->shared_payload += other->shared_payload;
	t->hazards += other->hazards;
	t->anchored += other->anchored;
	t->window_full += other->window_full;
	t->underruns += other->underruns;
	t->record_stalls += other->record_stalls;
	t->involuntary_switches += other->involuntary_switches;
	t->time_limit |= other->time_limit;
	t->realtime_given_up += other->realtime_given_up;
	t->max_outstanding += other->max_outstanding;
	t->min_lateness_ns = other->min_lateness_ns < t->min_lateness_ns ? other->min_lateness_ns : t->min_lateness_ns;
	t->max_lateness_ns = larger(t->max_lateness_ns, other->max_lateness_ns);
	t->max_host_lateness_ns = larger(t->max_host_lateness_ns, other->max_host_lateness_ns);
	t->plan_ns = larger(t->plan_ns, other->plan_ns);
	t->wall_ns = larger(t->wall_ns, other->wall_ns);
	if (!t->errors && other->errors)
		t->first_error_row = other->first_error_row;
	if (!t->first_error)
		t->first_error = other->first_error;
	t->errors += other->errors;
}

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

/* None was timed: there is no least and no most. */
static int64_t or_zero(int64_t lateness_ns)
{
	return lateness_ns == INT64_MAX || lateness_ns == INT64_MIN ? 0 : lateness_ns;
}

static void write_lanes(FILE *out, const struct circumstances *how)
{
	fputs("\"lanes\": [", out);
	for (unsigned i = 0; i < how->lane_count; i++) {
		const struct lane *lane = &how->lanes[i];

		fprintf(out, "%s{", i ? ", " : "");
		write_number(out, "depth", lane->depth);
		write_number(out, "planned_ops", lane->plan.rows_read);
		write_number(out, "issued_ops", lane->issued);
		write_number(out, "underruns", lane->underruns);
		fprintf(out, "\"window_full\": %" PRId64 "}", lane->window_full);
	}
	fputs("], ", out);
}

/* In the order in which the lanes were given; `lanes` has them in that of their threads. */
static void write_lane_issued(FILE *out, const struct circumstances *how)
{
	int64_t issued[MAX_LANES] = { 0 };

	for (unsigned i = 0; i < how->lane_count; i++)
		issued[how->lanes[i].number] = how->lanes[i].issued;
	fputs("\"lane_issued\": [", out);
	for (unsigned i = 0; i < how->lane_count; i++)
		fprintf(out, "%s%" PRId64, i ? ", " : "", issued[i]);
	fputs("], ", out);
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
	write_number(out, "hazard_ops", t->hazards);
	write_number(out, "anchored_ops", t->anchored);
	write_number(out, "window_full", t->window_full);
	write_number(out, "underruns", t->underruns);
	write_number(out, "record_stalls", t->record_stalls);
	write_number(out, "involuntary_switches", t->involuntary_switches);
	write_number(out, "realtime_given_up", t->realtime_given_up);
	write_number(out, "max_outstanding", t->max_outstanding);
	write_number(out, "min_lateness_ns", or_zero(t->min_lateness_ns));
	write_number(out, "max_lateness_ns", or_zero(t->max_lateness_ns));
	write_number(out, "max_host_lateness_ns", or_zero(t->max_host_lateness_ns));
	write_number(out, "plan_ns", t->plan_ns);
	write_number(out, "wall_ns", t->wall_ns);
	write_number(out, "start_monotonic_ns", t->start_monotonic_ns);
	write_number(out, "start_realtime_ns", t->start_realtime_ns);
	if (t->first_error) {
		write_number(out, "first_error", t->first_error);
		write_number(out, "first_error_row", t->first_error_row);
	}
	write_lanes(out, how);
	write_lane_issued(out, how);
	write_flag(out, "time_limit", t->time_limit);
	write_number(out, "threads", how->thread_count);
	write_number(out, "depth", how->depth);
	write_number(out, "cpu", how->cpu);
	fprintf(out, "\"seed\": %" PRIu64 ", ", how->seed);
	write_flag(out, "memory_locked", how->memory_locked);
	write_flag(out, "realtime", how->realtime);
	write_flag(out, "direct", how->targets[0].direct);
	write_number(out, "target_bytes", how->targets[0].size_bytes);
	write_number(out, "logical_block_bytes", how->targets[0].logical_block_bytes);
	fprintf(out, "\"features\": %s, ", how->features);
	fputs("\"watch\": ", out);
	watch_write_json(out, how->watches, how->thread_count);
	fputs(", ", out);
	if (how->simulated) {
		fputs("\"simulated\": ", out);
		simulated_write_json(how->simulated, out);
		fputs(", ", out);
	}
	write_string(out, "stopped", how->stopped);
	fputs("\"engine\": 1}", out);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}
