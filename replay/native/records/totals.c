/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "totals.h"

#include <inttypes.h>
#include <stdio.h>

#include "plan/lane.h"
#include "run/run.h"
#include "simulated/simulated.h"
#include "text.h"

enum merge { SUM, LEAST, MOST };

static const struct totals_field {
	const char *key;
	size_t offset;
	enum merge merge;
} fields[] = {
#define FIELD(key, member, merge) { key, offsetof(struct totals, member), merge }
	FIELD("error_ops", errors, SUM),
	FIELD("compares_unequal", compares_unequal, SUM),
	FIELD("abandoned_ops", abandoned, SUM),
	FIELD("split_ops", split, SUM),
	FIELD("merged_ops", merged, SUM),
	FIELD("queue_full_ops", queue_full, SUM),
	FIELD("buffers_full_ops", buffers_full, SUM),
	FIELD("hazard_ops", hazards, SUM),
	FIELD("dependent_ops", dependent, SUM),
	FIELD("window_full", window_full, SUM),
	FIELD("underruns", underruns, SUM),
	FIELD("record_stalls", record_stalls, SUM),
	FIELD("involuntary_switches", involuntary_switches, SUM),
	FIELD("realtime_given_up", realtime_given_up, SUM),
	FIELD("max_outstanding", max_outstanding, SUM),
	FIELD("min_lateness_ns", min_lateness_ns, LEAST),
	FIELD("max_lateness_ns", max_lateness_ns, MOST),
	FIELD("max_host_lateness_ns", max_host_lateness_ns, MOST),
	FIELD("plan_ns", plan_ns, MOST),
	FIELD("wall_ns", wall_ns, MOST),
	FIELD("start_monotonic_ns", start_monotonic_ns, MOST),
	FIELD("start_realtime_ns", start_realtime_ns, MOST),
#undef FIELD
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

void totals_init(struct totals *totals)
{
	*totals = (struct totals){
		.min_lateness_ns = INT64_MAX,
		.max_lateness_ns = INT64_MIN,
		.max_host_lateness_ns = INT64_MIN,
	};
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
	if (!t->errors && other->errors)
		t->first_error_row = other->first_error_row;
	if (!t->first_error)
		t->first_error = other->first_error;
	t->time_limit |= other->time_limit;
	for (size_t i = 0; i < FIELDS; i++) {
		int64_t *sum = (int64_t *)((char *)t + fields[i].offset);
		int64_t value = *(const int64_t *)((const char *)other + fields[i].offset);

		if (fields[i].merge == SUM)
			*sum += value;
		else if (fields[i].merge == LEAST ? value < *sum : value > *sum)
			*sum = value;
	}
}

int64_t totals_sum(const int64_t *by_op)
{
	int64_t sum = 0;

	for (int op = 0; op < OP_COUNT; op++)
		sum += by_op[op];
	return sum;
}

/* Leaves out zero counts. */
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

static void write_number(FILE *out, const char *key, int64_t value)
{
	fprintf(out, "\"%s\": %" PRId64 ", ", key, value);
}

static void write_flag(FILE *out, const char *key, bool value)
{
	fprintf(out, "\"%s\": %s, ", key, value ? "true" : "false");
}

static void write_fields(FILE *out, const struct totals *t)
{
	for (size_t i = 0; i < FIELDS; i++) {
		int64_t value = *(const int64_t *)((const char *)t + fields[i].offset);

		/* The initial values of the least and the most: no row had a deadline. */
		write_number(out, fields[i].key, value == INT64_MAX || value == INT64_MIN ? 0 : value);
	}
	if (t->first_error) {
		write_number(out, "first_error", t->first_error);
		write_number(out, "first_error_row", t->first_error_row);
	}
}

/* "lanes" is in the order of the threads, "lane_issued" in the order of the options. */
static void write_lanes(FILE *out, const struct run_conditions *conditions)
{
	int64_t issued[MAX_LANES] = { 0 };

	fputs("\"lanes\": [", out);
	for (unsigned i = 0; i < conditions->lane_count; i++) {
		const struct lane *lane = &conditions->lanes[i];

		issued[lane->number] = lane->issued;
		fprintf(out, "%s{", i ? ", " : "");
		write_number(out, "depth", lane->depth);
		write_number(out, "planned_ops", lane->plan.rows_read);
		write_number(out, "issued_ops", lane->issued);
		write_number(out, "underruns", lane->underruns);
		fprintf(out, "\"window_full\": %" PRId64 "}", lane->window_full);
	}
	fputs("], \"lane_issued\": [", out);
	for (unsigned i = 0; i < conditions->lane_count; i++)
		fprintf(out, "%s%" PRId64, i ? ", " : "", issued[i]);
	fputs("], ", out);
}

char *totals_json(const struct totals *t, const struct run_conditions *conditions)
{
	TEXT(text) = { 0 };
	FILE *out;

	if (text_init(&text))
		return NULL;
	out = text.file;
	fputc('{', out);
	write_number(out, "planned_ops", conditions->planned);
	write_number(out, "issued_ops", totals_sum(t->issued));
	write_number(out, "completed_ops", totals_sum(t->completed));
	write_counts(out, "issued", op_names, t->issued, 0, OP_COUNT);
	write_counts(out, "completed", op_names, t->completed, 0, OP_COUNT);
	write_counts(out, "bytes", op_names, t->bytes, 0, OP_COUNT);
	write_counts(out, "altered", fidelity_names, t->altered, ALTERED_FUA, DROPPED);
	write_counts(out, "dropped", op_names, t->dropped, 0, OP_COUNT);
	write_fields(out, t);
	write_lanes(out, conditions);
	write_flag(out, "time_limit", t->time_limit);
	write_number(out, "threads", conditions->thread_count);
	write_number(out, "depth", conditions->depth);
	write_number(out, "cpu", conditions->cpu);
	fprintf(out, "\"seed\": %" PRIu64 ", ", conditions->seed);
	write_flag(out, "memory_locked", conditions->memory_locked);
	write_flag(out, "realtime", conditions->realtime);
	write_flag(out, "direct", true);
	write_number(out, "target_bytes", conditions->targets[0].size_bytes);
	write_number(out, "logical_block_bytes", conditions->targets[0].logical_block_bytes);
	fprintf(out, "\"features\": %s, \"stall_monitor\": ", conditions->features);
	stall_monitor_write_json(out, conditions->monitors, conditions->thread_count);
	if (conditions->simulated) {
		fputs(", \"simulated\": ", out);
		simulated_write_json(conditions->simulated, out);
	}
	fputs(", \"stopped\": ", out);
	if (conditions->stopped)
		print_json_string(out, conditions->stopped, SIZE_MAX);
	else
		fputs("null", out);
	fputs(", \"engine\": 1}", out);
	return text_finish(&text);
}
