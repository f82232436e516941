/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blkreel-capture: the privileged part of `blkreel capture`. It writes blocks of
 * rows to an inherited file and status as JSON lines to stdout, and ends when
 * its stdin is closed.
 */
#include "error.h"
#include "options.h"
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_RING_BYTES (64u << 10)
#define MAX_RING_BYTES (1u << 30)

static const char usage[] =
	"usage: blkreel-capture --device MAJOR:MINOR ... --rows-fd N [--reserve-fd N] [--programs tp_btf|raw_tp]\n"
	"                       [--ring-bytes N] [--files] [--own-pid N ...] [--own-cgroup DIRECTORY] [--own-only]\n"
	"                       [--without-io-start] [--without-uses] [--volumes] [--live MILLISECONDS] [--verbose]\n"
	"       blkreel-capture --probe [--programs tp_btf|raw_tp] [--verbose]\n";

/* These return 0, 1 after an error message, or 2 for an invalid argument. */
static int add_drive(void *context, const char *number)
{
	struct session_options *options = context;

	if (options->drive_count == MAX_DEVICES)
		return -report_error(NULL, "at most %d drives in one capture", MAX_DEVICES);
	return drive_open(&options->drives[options->drive_count++], number) ? 1 : 0;
}

static int add_own_pid(void *context, const char *argument)
{
	struct session_options *options = context;
	int32_t *grown = realloc(options->own_pids, (options->own_pid_count + 1) * sizeof(*grown));
	int64_t pid;

	if (!grown)
		return -report_error(NULL, "no memory");
	options->own_pids = grown;
	if (!parse_number(argument, 1, INT32_MAX, &pid))
		return 2;
	options->own_pids[options->own_pid_count++] = (int32_t)pid;
	options->own = true;
	return 0;
}

/* The ring must be a power of two: rounded up. */
static int set_ring_bytes(void *context, const char *argument)
{
	struct session_options *options = context;
	int64_t wanted;

	if (!parse_number(argument, 0, INT64_MAX, &wanted))
		return 2;
	if (wanted > MAX_RING_BYTES)
		return -report_error("give at most 1G", "a ring of %s bytes is too large", argument);
	for (options->ring_bytes = MIN_RING_BYTES; options->ring_bytes < wanted;)
		options->ring_bytes *= 2;
	return 0;
}

int main(int argc, char **argv)
{
	struct session_options options = { .ring_bytes = 16u << 20, .rows_fd = -1, .reserve_fd = -1 };
	bool probe = false, verbose = false;
	const struct option_entry entries[] = {
		CALL_OPTION("device", add_drive, &options),
		NUMBER_OPTION("rows-fd", options.rows_fd, 0, INT32_MAX),
		NUMBER_OPTION("reserve-fd", options.reserve_fd, 0, INT32_MAX),
		TEXT_OPTION("programs", options.kind),
		CALL_OPTION("ring-bytes", set_ring_bytes, &options),
		FLAG_OPTION("files", options.files),
		FLAG_OPTION("without-names", options.without_names),
		CALL_OPTION("own-pid", add_own_pid, &options),
		TEXT_OPTION("own-cgroup", options.own_cgroup),
		FLAG_OPTION("own-only", options.own_only),
		FLAG_OPTION("without-io-start", options.without_io_start),
		FLAG_OPTION("without-uses", options.without_uses),
		FLAG_OPTION("volumes", options.volumes),
		NUMBER_OPTION("live", options.live_ms, 0, INT32_MAX),
		/* Synthetic records: rate per second, and total count. For tests and measurements. */
		NUMBER_OPTION("synthetic", options.synthetic_per_second, 0, INT64_MAX),
		NUMBER_OPTION("synthetic-count", options.synthetic_count, 0, INT64_MAX),
		FLAG_OPTION("probe", probe),
		FLAG_OPTION("verbose", verbose),
		{ 0 },
	};
	int code = parse_options(argc, argv, entries, usage);

	if (code)
		return code;
	programs_set_verbose(verbose);
	options.own |= options.own_cgroup != NULL;
	if (options.kind && !strcmp(options.kind, "auto"))
		options.kind = NULL;
	if (!probe && (!options.drive_count || options.rows_fd < 0)) {
		fputs(usage, stderr);
		return 2;
	}
	return probe ? session_probe(&options) : session_run(&options);
}
