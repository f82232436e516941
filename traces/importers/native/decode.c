/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "decode.h"
#include "cleanup.h"
#include "clock.h"
#include "error.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define ROUND_MS 5
#define LIVE_NICE (-15) /* events that are not read in time are lost; fails without the privilege */
#define FLUSH_EVERY_NS 100000000ull
#define PROGRESS_EVERY_NS 500000000ull
#define NS_PER_S 1000000000ull

struct decoder {
	const struct decode_options *options;
	struct decoded decoded;
	struct input *inputs;
	bool began;
	bool stopping;
	uint64_t flushed_ns, reported_ns;
	char line[128]; /* the unfinished line of stdin */
	size_t line_bytes;
};

static int fail(const char *what, int err)
{
	return report_error(NULL, "%s: %s", what, strerror(-err));
}

static void print_line(const struct decoded *decoded, void (*report)(const struct decoded *, FILE *))
{
	report(decoded, stdout);
	fputc('\n', stdout);
	fflush(stdout);
}

static void begin(struct decoder *decoder, uint64_t epoch_ns)
{
	decoder->began = true;
	decoder->decoded.rows.epoch_ns = epoch_ns;
	print_line(&decoder->decoded, report_attached);
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
		/* The last entry also counts all later ones. */
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

	/* In a dump of `blkparse -d` notices have absolute times, and events relative ones. */
	if (!decoder->began && !(event->category & CATEGORY_NOTIFY)) {
		if (decoder->decoded.clock_pair.monotonic_ns > event->time_ns + NS_PER_S)
			decoder->decoded.clock_pair = (struct clock_pair){ 0 };
		begin(decoder, event->time_ns);
	}
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

static int flush_rows(struct decoder *decoder)
{
	int err = rows_flush(&decoder->decoded.rows);

	return err ? err : threads_flush(&decoder->decoded.threads);
}

static int run_merge(struct decoder *decoder, uint64_t limit_ns)
{
	struct merge *merge = &decoder->decoded.merge;
	int err = merge_run(merge, limit_ns, take_event, decoder);

	if (merge->error)
		return report_error(NULL, "%s", merge->error);
	if (err == -E2BIG)
		return report_error(NULL, "the recording has more than %d devices; import the files of fewer devices",
				    MAX_PAIR_DEVICES);
	return err ? fail("cannot process the events", err) : 0;
}

static void take_line(struct decoder *decoder)
{
	uint64_t stopped_ns;

	decoder->line[decoder->line_bytes] = '\0';
	if (sscanf(decoder->line, "stopped %" SCNu64, &stopped_ns) == 1)
		decoder->decoded.pairing.stopped_ns = stopped_ns;
	decoder->line_bytes = 0;
}

/* Waits for a line on stdin; its end ends the recording. */
static void read_stdin(struct decoder *decoder, int timeout_ms)
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

/* Reads from every live input. busy: one may have more. */
static int fill_all(struct decoder *decoder, bool *busy)
{
	*busy = false;
	for (size_t i = 0; i < decoder->options->path_count; i++) {
		struct input *input = &decoder->inputs[i];

		if (input_fill(input))
			return report_error(NULL, "%s", input->error);
		*busy |= !input->drained;
	}
	return 0;
}

static void keep_up(struct decoder *decoder, uint64_t now_ns)
{
	if (now_ns - decoder->flushed_ns >= FLUSH_EVERY_NS) {
		flush_rows(decoder);
		decoder->flushed_ns = now_ns;
	}
	if (now_ns - decoder->reported_ns >= PROGRESS_EVERY_NS) {
		decoder->reported_ns = now_ns;
		print_line(&decoder->decoded, report_progress);
	}
}

static int follow(struct decoder *decoder)
{
	bool last = false;

	/* The tracer runs; its first row may come much later. */
	if (!decoder->began)
		begin(decoder, decoder->options->epoch_ns ? decoder->options->epoch_ns : monotonic_ns());
	for (;;) {
		uint64_t now_ns = monotonic_ns();
		bool busy;

		if (fill_all(decoder, &busy))
			return -1;
		last = decoder->stopping && !busy;
		if (run_merge(decoder, last ? UINT64_MAX : now_ns - decoder->options->late_ns))
			return -1;
		keep_up(decoder, now_ns);
		/* A full disk ends the recording; the rows before stay. */
		if (last || decoder->decoded.rows.error)
			return 0;
		if (!decoder->stopping)
			read_stdin(decoder, busy ? 0 : ROUND_MS);
	}
}

static int write_end(struct decoder *decoder)
{
	char *json CLEANUP_FREE = NULL;
	TEXT(text) = { 0 };

	if (text_init(&text))
		return -ENOMEM;
	report_end(&decoder->decoded, text.file, false);
	json = text_finish(&text);
	return json ? spool_file_write_json(&decoder->decoded.rows.file, BLOCK_END, json) : -ENOMEM;
}

static int finish(struct decoder *decoder)
{
	int err;

	pairing_finish(&decoder->decoded.pairing);
	rows_flush(&decoder->decoded.rows);
	err = threads_flush(&decoder->decoded.threads);
	if (!err)
		err = write_end(decoder);
	/* The totals below carry the error of a disk that is full. */
	if (err && !decoder->decoded.rows.error)
		return fail("cannot write rows", err);
	report_end(&decoder->decoded, stdout, true);
	fputc('\n', stdout);
	return fflush(stdout) ? fail("cannot write to stdout", -errno) : 0;
}

static int open_inputs(struct decoder *decoder)
{
	const struct decode_options *options = decoder->options;

	decoder->inputs = calloc(options->path_count, sizeof(*decoder->inputs));
	if (!decoder->inputs || merge_init(&decoder->decoded.merge, decoder->inputs, options->path_count))
		return fail("cannot open the inputs", -ENOMEM);
	for (size_t i = 0; i < options->path_count; i++) {
		if (input_init(&decoder->inputs[i], options->paths[i], options->live))
			return report_error(NULL, "%s", decoder->inputs[i].error);
	}
	/* Events of other streams from before the end of a loss are read after its begin: it counts at both. */
	for (size_t i = 0; i < options->path_count; i++)
		decoder->inputs[i].losses = &decoder->decoded.pairing.losses;
	return 0;
}

static int open_outputs(struct decoder *decoder, struct pair_devices *devices)
{
	const struct decode_options *options = decoder->options;
	struct decoded *decoded = &decoder->decoded;
	int err = rows_init(&decoded->rows, options->rows_fd, options->reserve_fd);

	if (!err)
		err = threads_init(&decoded->threads, &decoded->rows, options->live);
	if (!err)
		err = pairing_init(&decoded->pairing, &decoded->rows);
	if (err)
		return fail("cannot write rows", err);
	decoded->pairing.devices = *devices;
	*devices = (struct pair_devices){ 0 };
	decoded->pairing.silent_losses = options->silent_losses;
	decoded->pairing.any_device = !options->only_these;
	decoded->pairing.begun_ns = options->begun_ns;
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
	for (size_t i = 0; i < decoder->options->path_count && !decoder->began; i++)
		if (decoder->inputs[i].events)
			begin(decoder, decoder->decoded.clock_pair.monotonic_ns); /* only notices */
	if (!decoder->began)
		return report_error(NULL, "%s: no events", decoder->options->paths[0]);
	return 0;
}

static void decoder_free(struct decoder **pointer)
{
	struct decoder *decoder = *pointer;

	if (!decoder)
		return;
	merge_deinit(&decoder->decoded.merge);
	pairing_deinit(&decoder->decoded.pairing);
	threads_deinit(&decoder->decoded.threads);
	rows_deinit(&decoder->decoded.rows);
	free(decoder->inputs);
	free(decoder);
}

int decode(struct decode_options *options)
{
	struct decoder *decoder CLEANUP(decoder_free) = calloc(1, sizeof(*decoder));

	if (!decoder)
		return fail("cannot begin", -ENOMEM);
	signal(SIGPIPE, SIG_IGN);
	/* A live decoder ends with its stdin; the other would read to the end of its files for a command that was killed. */
	if (options->live)
		setpriority(PRIO_PROCESS, 0, LIVE_NICE);
	else
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGXFSZ, SIG_IGN); /* a limit of the file's size is an error like a full disk */
	decoder->options = options;
	return open_outputs(decoder, &options->devices) || open_inputs(decoder) ||
	       (options->live ? follow(decoder) : read_files(decoder)) || finish(decoder) ? -1 : 0;
}
