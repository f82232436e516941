/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "blktrace_decode.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define ROUND_MS 5
#define LIVE_NICE (-15) /* what is not read in time is lost; without the right to it, it must do without */
#define HAND_OVER_NS 100000000ull
#define PROGRESS_NS 500000000ull
#define NS_PER_S 1000000000ull

struct decoder {
	const struct decode_options *options;
	struct decoded decoded;
	struct input *inputs;
	bool began;
	bool stopping;
	uint64_t handed_over_ns, told_ns;
	char line[128]; /* what came on stdin of an unfinished line */
	size_t line_bytes;
};

static int say(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-err));
	return -1;
}

static void tell(const struct decoded *decoded, void (*report)(const struct decoded *, FILE *))
{
	report(decoded, stdout);
	fputc('\n', stdout);
	fflush(stdout);
}

static void begin(struct decoder *decoder, uint64_t epoch_ns)
{
	decoder->began = true;
	decoder->decoded.rows.epoch_ns = epoch_ns;
	tell(&decoder->decoded, report_attached);
}

static void take_loss(struct decoder *decoder, struct input *input)
{
	struct decoded *decoded = &decoder->decoded;
	struct loss *loss = &input->loss;

	loss->last_ns = input->event.time_ns;
	decoded->lost += loss->count;
	pairing_note_loss(&decoded->pairing);
	if (decoded->loss_count < MAX_LOSSES) {
		decoded->losses[decoded->loss_count++] = *loss;
	} else {
		/* The last stands for all that come after it. */
		decoded->losses[MAX_LOSSES - 1].last_ns = loss->last_ns;
		decoded->losses[MAX_LOSSES - 1].count += loss->count;
	}
	*loss = (struct loss){ 0 };
}

static int take_notice(struct decoder *decoder, const struct blk_event *event)
{
	struct decoded *decoded = &decoder->decoded;

	switch (event->action) {
	case NOTICE_PROCESS:
		return threads_name(&decoder->decoded.threads, event);
	case NOTICE_TIMESTAMP:
		if (!decoded->clock_pair.realtime_ns)
			decoded->clock_pair = (struct clock_pair){
				.monotonic_ns = event->time_ns,
				.realtime_ns = event_payload_number(event, 0, false, event->big_endian) * NS_PER_S +
					       event_payload_number(event, 4, false, event->big_endian),
			};
		return 0;
	default:
		decoded->messages++;
		return 0;
	}
}

static int take_event(void *context, struct input *input)
{
	struct decoder *decoder = context;
	const struct blk_event *event = &input->event;

	if (!decoder->began)
		begin(decoder, event->time_ns);
	if (input->loss.count)
		take_loss(decoder, input);
	if (event->category & CATEGORY_NOTIFY)
		return take_notice(decoder, event);
	if (event->action == ACTION_QUEUE || event->action == ACTION_GET_REQUEST || event->action == ACTION_INSERT) {
		int err = threads_note(&decoder->decoded.threads, event->pid);

		if (err)
			return err;
	}
	return pairing_take(&decoder->decoded.pairing, event);
}

static int hand_over(struct decoder *decoder)
{
	int err = rows_flush(&decoder->decoded.rows);

	return err ? err : threads_flush(&decoder->decoded.threads);
}

static int run_merge(struct decoder *decoder, uint64_t limit_ns)
{
	struct merge *merge = &decoder->decoded.merge;
	int err = merge_run(merge, limit_ns, take_event, decoder);

	if (merge->error) {
		fprintf(stderr, "%s\n", merge->error);
		return -1;
	}
	return err ? say("cannot go on with the rows", err) : 0;
}

static void take_line(struct decoder *decoder)
{
	uint64_t stopped_ns;

	decoder->line[decoder->line_bytes] = '\0';
	if (sscanf(decoder->line, "stopped %" SCNu64, &stopped_ns) == 1)
		decoder->decoded.pairing.stopped_ns = stopped_ns;
	decoder->line_bytes = 0;
}

/* Waits a little for words on stdin; its end is the end of the recording. */
static void listen(struct decoder *decoder, int timeout_ms)
{
	struct pollfd watched = { .fd = STDIN_FILENO, .events = POLLIN };
	char text[64];
	ssize_t count;

	if (poll(&watched, 1, timeout_ms) <= 0)
		return;
	count = read(STDIN_FILENO, text, sizeof(text));
	if (count <= 0) {
		decoder->stopping = count == 0 || errno != EINTR;
		return;
	}
	for (ssize_t i = 0; i < count; i++) {
		if (text[i] == '\n')
			take_line(decoder);
		else if (decoder->line_bytes < sizeof(decoder->line) - 1)
			decoder->line[decoder->line_bytes++] = text[i];
	}
}

/* One look at every live input. busy: there may be more at once. */
static int fill_all(struct decoder *decoder, bool *busy)
{
	*busy = false;
	for (size_t i = 0; i < decoder->options->path_count; i++) {
		struct input *input = &decoder->inputs[i];

		if (input_fill(input)) {
			fprintf(stderr, "%s\n", input->error);
			return -1;
		}
		*busy |= !input->drained;
	}
	return 0;
}

static void keep_up(struct decoder *decoder, uint64_t now_ns)
{
	if (now_ns - decoder->handed_over_ns >= HAND_OVER_NS) {
		hand_over(decoder);
		decoder->handed_over_ns = now_ns;
	}
	if (now_ns - decoder->told_ns >= PROGRESS_NS) {
		decoder->told_ns = now_ns;
		tell(&decoder->decoded, report_progress);
	}
}

static int follow(struct decoder *decoder)
{
	bool last = false;

	/* Rows may come long after this; that the tracer runs is what matters. */
	if (!decoder->began)
		begin(decoder, decoder->options->epoch_ns ? decoder->options->epoch_ns : report_clock_ns(CLOCK_MONOTONIC));
	for (;;) {
		uint64_t now_ns = report_clock_ns(CLOCK_MONOTONIC);
		bool busy;

		if (fill_all(decoder, &busy))
			return -1;
		last = decoder->stopping && !busy;
		if (run_merge(decoder, last ? UINT64_MAX : now_ns - decoder->options->late_ns))
			return -1;
		keep_up(decoder, now_ns);
		/* A disk that is full ends the recording with what it holds. */
		if (last || decoder->decoded.rows.error)
			return 0;
		if (!decoder->stopping)
			listen(decoder, busy ? 0 : ROUND_MS);
	}
}

static int write_end(struct decoder *decoder)
{
	char *json = NULL;
	size_t length;
	FILE *file = open_memstream(&json, &length);
	int err;

	if (!file)
		return -ENOMEM;
	report_end(&decoder->decoded, file, false);
	fclose(file);
	err = rows_write_json(&decoder->decoded.rows, BLOCK_END, json);
	free(json);
	return err;
}

static int finish(struct decoder *decoder)
{
	int err;

	pairing_finish(&decoder->decoded.pairing);
	rows_flush(&decoder->decoded.rows);
	err = threads_flush(&decoder->decoded.threads);
	if (!err)
		err = write_end(decoder);
	/* A disk that is full has said so: the totals below carry it. */
	if (err && !decoder->decoded.rows.error)
		return say("cannot write rows", err);
	report_end(&decoder->decoded, stdout, true);
	fputc('\n', stdout);
	return fflush(stdout) ? say("cannot write to stdout", -errno) : 0;
}

static int open_inputs(struct decoder *decoder)
{
	const struct decode_options *options = decoder->options;

	decoder->inputs = calloc(options->path_count, sizeof(*decoder->inputs));
	if (!decoder->inputs || merge_open(&decoder->decoded.merge, decoder->inputs, options->path_count))
		return say("cannot open the inputs", -ENOMEM);
	for (size_t i = 0; i < options->path_count; i++) {
		if (input_open(&decoder->inputs[i], options->paths[i], options->live)) {
			fprintf(stderr, "%s\n", decoder->inputs[i].error);
			return -1;
		}
	}
	/* Other streams' events from before its end are read after a loss has begun: it is counted at both. */
	for (size_t i = 0; i < options->path_count; i++)
		decoder->inputs[i].losses = &decoder->decoded.pairing.losses;
	return 0;
}

static int open_outputs(struct decoder *decoder)
{
	const struct decode_options *options = decoder->options;
	struct decoded *decoded = &decoder->decoded;
	int err = rows_open(&decoded->rows, options->rows_fd, options->reserve_fd);

	if (!err)
		err = threads_open(&decoded->threads, &decoded->rows, options->live);
	if (!err)
		err = pairing_open(&decoded->pairing, &decoded->rows);
	if (err)
		return say("cannot write rows", err);
	memcpy(decoded->pairing.devices, options->devices, sizeof(options->devices));
	decoded->pairing.device_count = options->device_count;
	decoded->pairing.silent_losses = options->silent_losses;
	decoded->pairing.any_device = !options->only_these;
	if (options->stopped_ns)
		decoded->pairing.stopped_ns = options->stopped_ns;
	return 0;
}

static int read_files(struct decoder *decoder)
{
	if (decoder->options->epoch_ns)
		begin(decoder, decoder->options->epoch_ns);
	if (run_merge(decoder, UINT64_MAX))
		return -1;
	if (!decoder->began) {
		fprintf(stderr, "%s holds no event\n", decoder->options->paths[0]);
		return -1;
	}
	return 0;
}

int decode(const struct decode_options *options)
{
	struct decoder *decoder = calloc(1, sizeof(*decoder));
	int failed;

	if (!decoder)
		return say("cannot begin", -ENOMEM);
	signal(SIGPIPE, SIG_IGN);
	if (options->live)
		setpriority(PRIO_PROCESS, 0, LIVE_NICE);
	signal(SIGXFSZ, SIG_IGN); /* a limit of the file's size is an error like a full disk */
	decoder->options = options;
	failed = open_outputs(decoder) || open_inputs(decoder) ||
		 (options->live ? follow(decoder) : read_files(decoder)) || finish(decoder);
	merge_close(&decoder->decoded.merge);
	pairing_close(&decoder->decoded.pairing);
	threads_close(&decoder->decoded.threads);
	rows_close(&decoder->decoded.rows);
	free(decoder->inputs);
	free(decoder);
	return failed ? -1 : 0;
}
