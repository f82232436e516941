/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The metrics kernel. Input: options, the columns that exist, the number of rows before the boundary, the burst gap, then
 * rows of 52 bytes; the time in the queue is the removed idle time as well. With an option the rest is a boundary state, as from a forged partial. A state that was read must be
 * accepted, and rows must give the same sums in one part and in two.
 */
#include "fuzz.h"
#include "metrics.h"

#include <errno.h>

#define MAX_ROWS 512

enum option { EXACT = 1, STEPS = 2, FORGED_STATE = 4, SMALL = 8 };

struct rows {
	int64_t submit_ns[MAX_ROWS], latency_ns[MAX_ROWS], queue_ns[MAX_ROWS], offset_bytes[MAX_ROWS], length_bytes[MAX_ROWS],
		due_ns[MAX_ROWS], idle_removed_ns[MAX_ROWS];
	int8_t op[MAX_ROWS];
	int32_t flags[MAX_ROWS], tid[MAX_ROWS], burst[MAX_ROWS];
	int16_t device[MAX_ROWS], status[MAX_ROWS];
};

static int64_t take_rows(struct rows *rows, struct input_bytes *input, uint8_t options)
{
	const int64_t mask = options & SMALL ? 0xffffff : INT64_MAX;
	int64_t count = 0, last_ns = 0;

	for (; input->size && count < MAX_ROWS; count++) {
		int64_t submit_ns = take_number(input);

		/* In submit order, which most files have. */
		if (options & STEPS) {
			last_ns += submit_ns & mask & 0xffffffffffff;
			submit_ns = last_ns;
		}
		rows->submit_ns[count] = submit_ns;
		rows->latency_ns[count] = take_number(input) & (options & SMALL ? mask : -1);
		rows->queue_ns[count] = take_number(input) & (options & SMALL ? mask : -1);
		rows->idle_removed_ns[count] = rows->queue_ns[count];
		rows->offset_bytes[count] = take_number(input);
		rows->due_ns[count] = take_number(input);
		if (options & SMALL)
			rows->due_ns[count] = submit_ns - (rows->due_ns[count] & mask);
		take_bytes(input, &rows->length_bytes[count], 3);
		take_bytes(input, &rows->flags[count], 4);
		rows->op[count] = (int8_t)take_byte(input);
		rows->tid[count] = take_byte(input);
		rows->burst[count] = (int8_t)take_byte(input);
		rows->device[count] = take_byte(input);
		rows->status[count] = take_byte(input) & 1;
	}
	return count;
}

static struct metrics_columns columns_of(const struct rows *rows, uint8_t present, int64_t from, int64_t to)
{
	return (struct metrics_columns){
		.rows = to - from,
		.submit_ns = rows->submit_ns + from,
		.latency_ns = rows->latency_ns + from,
		.length_bytes = rows->length_bytes + from,
		.op = rows->op + from,
		.queue_ns = present & 1 ? rows->queue_ns + from : NULL,
		.offset_bytes = present & 2 ? rows->offset_bytes + from : NULL,
		.due_ns = present & 4 ? rows->due_ns + from : NULL,
		.idle_removed_ns = (present & 6) == 6 ? rows->idle_removed_ns + from : NULL,
		.flags = present & 8 ? rows->flags + from : NULL,
		.tid = present & 16 ? rows->tid + from : NULL,
		.burst = present & 32 ? rows->burst + from : NULL,
		.device = present & 64 ? rows->device + from : NULL,
		.status = present & 128 ? rows->status + from : NULL,
	};
}

/* The values of a part, which the caller frees. */
static int64_t *read_part(struct metrics *metrics, int part, int which, int64_t *length)
{
	int64_t *values;

	*length = metrics_read(metrics, part, which, NULL, 0);
	if (*length < 0)
		return NULL;
	values = malloc((size_t)(*length ? *length : 1) * sizeof(*values));
	REQUIRE(values && metrics_read(metrics, part, which, values, (size_t)*length) == *length);
	return values;
}

static void read_all(struct metrics *metrics)
{
	for (int part = 0; part <= PART_LATENCY_POINTS + 1; part++) {
		for (int which = 0; which <= DISTRIBUTIONS; which++) {
			int64_t length;

			free(read_part(metrics, part, which, &length));
		}
	}
	for (int kind = -1; kind <= CLASSES; kind++) {
		const int64_t *rows;
		int64_t length, reach_ns, count = metrics_bursts(metrics, PART_BURSTS, kind, &reach_ns, &rows);
		int64_t *values = read_part(metrics, PART_BURSTS, kind, &length);

		REQUIRE(count < 0 ? !values : length == 1 + count * 8 && values[0] == reach_ns &&
			!(count && memcmp(rows, values + 1, (size_t)(length - 1) * sizeof(*rows))));
		free(values);
	}
	for (int distribution = 0; distribution < DISTRIBUTIONS; distribution++) {
		const int64_t *values;
		int64_t count = metrics_taken(metrics, distribution, &values), sum = 0;

		for (int64_t i = 0; i < count; i++)
			sum |= values[i];
		(void)sum;
	}
}

/* Of a class: ops, bytes, errors, unseen ops and bytes, service and busy time add up over parts. */
static void require_same_sums(struct metrics *whole, struct metrics *first, struct metrics *second)
{
	for (int kind = 0; kind < CLASSES; kind++) {
		int64_t length, *all = read_part(whole, PART_SUMS, kind, &length);
		int64_t *a = read_part(first, PART_SUMS, kind, &length), *b = read_part(second, PART_SUMS, kind, &length);

		for (int i = 0; i < 7; i++)
			REQUIRE(all[i] == a[i] + b[i]);
		free(all);
		free(a);
		free(b);
	}
}

static void use_forged_state(int64_t gap_ns, uint8_t options, struct input_bytes input)
{
	size_t length = input.size / sizeof(int64_t);
	int64_t *state = malloc(input.size + 1);
	struct metrics *metrics;

	REQUIRE(state);
	memcpy(state, input.data, input.size);
	metrics = metrics_new(gap_ns, options & EXACT, state, length);
	free(state);
	if (metrics)
		read_all(metrics);
	metrics_free(metrics);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct rows rows;
	struct input_bytes input = { data, size };
	uint8_t options = take_byte(&input), present = take_byte(&input), boundary = take_byte(&input);
	int64_t gap_ns = 1ll << take_byte(&input) % 62, count, split, state_length, *state;
	struct metrics *whole, *first, *second;
	struct metrics_columns columns;

	if (options & FORGED_STATE) {
		use_forged_state(gap_ns, options, input);
		return 0;
	}
	memset(&rows, 0, sizeof(rows));
	count = take_rows(&rows, &input, options);
	split = count * boundary / 256;
	whole = metrics_new(gap_ns, options & EXACT, NULL, 0);
	first = metrics_new(gap_ns, options & EXACT, NULL, 0);
	REQUIRE(whole && first);
	columns = columns_of(&rows, present, 0, split);
	if (!metrics_feed(first, &columns)) {
		int err;

		state = read_part(first, PART_BOUNDARY_STATE, 0, &state_length);
		second = metrics_new(gap_ns, options & EXACT, state, (size_t)state_length);
		REQUIRE(second);
		columns = columns_of(&rows, present, split, count);
		err = metrics_feed(second, &columns);
		columns = columns_of(&rows, present, 0, count);
		if (!err && !metrics_feed(whole, &columns))
			require_same_sums(whole, first, second);
		/* Only one of them, because this takes longer than all else; refused rows leave it half fed. */
		read_all(second);
		free(state);
		metrics_free(second);
	}
	metrics_free(first);
	metrics_free(whole);
	return 0;
}
