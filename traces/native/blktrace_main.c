/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blkreel-blktrace: events of blktrace, from files or from a live tracer, become rows of a trace.
 * The rows go as blocks to the file of --rows-fd, progress and totals as JSON lines to stdout.
 * Live it goes on until stdin ends. A line "stopped NS" there, or --stopped, says up to when completions are
 * counted for a comparison with the drive's own counters.
 */
#include "blktrace_decode.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: blkreel-blktrace --rows-fd N [--reserve-fd N] [--live] [--late NS] [--epoch NS] [--stopped NS]\n"
	"                        [--silent-losses]\n"
	"                        [--only] [--device MAJOR:MINOR]... [--bio MAJOR:MINOR]... FILE...\n";

enum option_code { ROWS_FD = 1, RESERVE_FD, LIVE, LATE, EPOCH, STOPPED, ONLY, SILENT_LOSSES, DEVICE, BIO };

static const struct option options_known[] = {
	{ "rows-fd", required_argument, NULL, ROWS_FD },
	{ "reserve-fd", required_argument, NULL, RESERVE_FD },
	{ "late", required_argument, NULL, LATE },
	{ "live", no_argument, NULL, LIVE },
	{ "epoch", required_argument, NULL, EPOCH },
	{ "stopped", required_argument, NULL, STOPPED },
	{ "silent-losses", no_argument, NULL, SILENT_LOSSES },
	{ "only", no_argument, NULL, ONLY },
	{ "device", required_argument, NULL, DEVICE },
	{ "bio", required_argument, NULL, BIO },
	{ 0 },
};

static int add_device(struct decode_options *options, const char *text, bool bio_based)
{
	struct pair_device *device = &options->devices[options->device_count];
	unsigned major, minor;

	if (options->device_count == MAX_PAIR_DEVICES || sscanf(text, "%u:%u", &major, &minor) != 2 ||
	    major >= 1u << 12 || minor >= 1u << 20)
		return -1;
	device->number = major << 20 | minor;
	device->bio_based = bio_based;
	options->device_count++;
	return 0;
}

int main(int argc, char **argv)
{
	struct decode_options options = { .rows_fd = -1, .reserve_fd = -1, .late_ns = 20000000 };
	int option, err = 0;

	while (!err && (option = getopt_long(argc, argv, "", options_known, NULL)) != -1) {
		switch (option) {
		case ROWS_FD:
			options.rows_fd = atoi(optarg);
			break;
		case RESERVE_FD:
			options.reserve_fd = atoi(optarg);
			break;
		case LATE:
			options.late_ns = strtoull(optarg, NULL, 10);
			break;
		case LIVE:
			options.live = true;
			break;
		case EPOCH:
			options.epoch_ns = strtoull(optarg, NULL, 10);
			break;
		case STOPPED:
			options.stopped_ns = strtoull(optarg, NULL, 10);
			break;
		case SILENT_LOSSES:
			options.silent_losses = true;
			break;
		case ONLY:
			options.only_these = true;
			break;
		case DEVICE:
			err = add_device(&options, optarg, false);
			break;
		case BIO:
			err = add_device(&options, optarg, true);
			break;
		default:
			err = -1;
		}
	}
	if (err || options.rows_fd < 0 || optind == argc) {
		fputs(usage, stderr);
		return 2;
	}
	options.paths = &argv[optind];
	options.path_count = argc - optind;
	return decode(&options) ? 1 : 0;
}
