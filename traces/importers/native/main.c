/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blkreel-blktrace: events of blktrace, from files or from a live tracer, become rows of a trace.
 * It writes rows as blocks to the file of --rows-fd, status as JSON lines to stdout. With --live it ends with its stdin.
 * Rows are of I/Os that end after --begun and are submitted up to --stopped, or to a line "stopped NS" of stdin.
 * Completions between the two are those that the drive's own counters have.
 */
#include "decode.h"
#include "options.h"

#include <getopt.h>

static const char usage[] =
	"usage: blkreel-blktrace --rows-fd N [--reserve-fd N] [--live] [--late NS] [--epoch NS]\n"
	"                        [--begun NS] [--stopped NS] [--silent-losses]\n"
	"                        [--only] [--device MAJOR:MINOR]... [--bio MAJOR:MINOR]... FILE...\n";

/* Returns 0, or 2 for an invalid argument. */
static int add_device(struct pair_devices *devices, const char *number, bool bio_based)
{
	unsigned major, minor;

	if (sscanf(number, "%u:%u", &major, &minor) != 2 || major >= 1u << 12 || minor >= 1u << 20)
		return 2;
	return pair_devices_add(devices, major << 20 | minor, bio_based) ? 2 : 0;
}

static int add_request_based(void *devices, const char *number)
{
	return add_device(devices, number, false);
}

static int add_bio_based(void *devices, const char *number)
{
	return add_device(devices, number, true);
}

int main(int argc, char **argv)
{
	struct decode_options options = { .rows_fd = -1, .reserve_fd = -1, .late_ns = 20000000 };
	const struct option_entry entries[] = {
		NUMBER_OPTION("rows-fd", options.rows_fd, 0, INT32_MAX),
		NUMBER_OPTION("reserve-fd", options.reserve_fd, 0, INT32_MAX),
		NUMBER_OPTION("late", options.late_ns, 0, INT64_MAX),
		FLAG_OPTION("live", options.live),
		NUMBER_OPTION("epoch", options.epoch_ns, 0, INT64_MAX),
		NUMBER_OPTION("begun", options.begun_ns, 0, INT64_MAX),
		NUMBER_OPTION("stopped", options.stopped_ns, 0, INT64_MAX),
		FLAG_OPTION("silent-losses", options.silent_losses),
		FLAG_OPTION("only", options.only_these),
		CALL_OPTION("device", add_request_based, &options.devices),
		CALL_OPTION("bio", add_bio_based, &options.devices),
		{ 0 },
	};
	int code = parse_options(argc, argv, entries, usage);

	if (code)
		return code;
	if (options.rows_fd < 0 || optind == argc) {
		fputs(usage, stderr);
		return 2;
	}
	options.paths = &argv[optind];
	options.path_count = argc - optind;
	code = decode(&options) ? 1 : 0;
	pair_devices_deinit(&options.devices);
	return code;
}
