/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blkreel-capture: the privileged half of `blkreel capture`. Blocks of rows go
 * to a file that it inherits, a line of JSON to stdout for what its parent
 * should know; it ends with its stdin.
 */
#include "failure.h"
#include "session.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_RING_BYTES (64u << 10)
#define MAX_RING_BYTES (1u << 30)

static const char usage[] =
	"usage: blkreel-capture --device MAJOR:MINOR ... --rows-fd N [--reserve-fd N] [--programs tp_btf|raw_tp]\n"
	"                       [--ring-bytes N] [--files] [--own-pid N ...] [--own-cgroup DIRECTORY] [--own-only]\n"
	"                       [--without-io-start] [--live MILLISECONDS] [--verbose]\n"
	"       blkreel-capture --probe [--programs tp_btf|raw_tp] [--verbose]\n";

enum option_code {
	DEVICE = 1,
	ROWS_FD,
	RESERVE_FD,
	PROGRAMS,
	RING_BYTES,
	FILES,
	OWN_PID,
	OWN_CGROUP,
	OWN_ONLY,
	WITHOUT_IO_START,
	LIVE,
	SYNTHETIC,
	SYNTHETIC_COUNT,
	PROBE,
	VERBOSE,
};

static const struct option options_known[] = {
	{ "device", required_argument, NULL, DEVICE },
	{ "rows-fd", required_argument, NULL, ROWS_FD },
	{ "reserve-fd", required_argument, NULL, RESERVE_FD },
	{ "programs", required_argument, NULL, PROGRAMS },
	{ "ring-bytes", required_argument, NULL, RING_BYTES },
	{ "files", no_argument, NULL, FILES },
	{ "own-pid", required_argument, NULL, OWN_PID },
	{ "own-cgroup", required_argument, NULL, OWN_CGROUP },
	{ "own-only", no_argument, NULL, OWN_ONLY },
	{ "without-io-start", no_argument, NULL, WITHOUT_IO_START },
	{ "live", required_argument, NULL, LIVE },
	/* Records of no I/O, so many a second, so many in all: for tests and measurements. */
	{ "synthetic", required_argument, NULL, SYNTHETIC },
	{ "synthetic-count", required_argument, NULL, SYNTHETIC_COUNT },
	{ "probe", no_argument, NULL, PROBE },
	{ "verbose", no_argument, NULL, VERBOSE },
	{ 0 },
};

static int add_drive(struct session_options *options, const char *number)
{
	if (options->drive_count == MAX_DEVICES)
		return fail(NULL, "at most %d drives in one capture", MAX_DEVICES);
	return drive_open(&options->drives[options->drive_count++], number);
}

static int add_own_pid(struct session_options *options, const char *text)
{
	int32_t *grown = realloc(options->own_pids, (options->own_pid_count + 1) * sizeof(*grown));

	if (!grown)
		return fail(NULL, "no memory");
	options->own_pids = grown;
	options->own_pids[options->own_pid_count++] = atoi(text);
	options->own = true;
	return 0;
}

/* The ring must be a power of two: rounded up. */
static int set_ring_bytes(struct session_options *options, const char *text)
{
	unsigned long long wanted = strtoull(text, NULL, 10);
	uint32_t bytes = MIN_RING_BYTES;

	if (wanted > MAX_RING_BYTES)
		return fail("give at most 1G", "a ring of %llu bytes is too large", wanted);
	while (bytes < wanted)
		bytes *= 2;
	options->ring_bytes = bytes;
	return 0;
}

int main(int argc, char **argv)
{
	struct session_options options = { .ring_bytes = 16u << 20, .rows_fd = -1, .reserve_fd = -1 };
	bool probe = false;
	int option, err = 0;

	while (!err && (option = getopt_long(argc, argv, "", options_known, NULL)) != -1) {
		switch (option) {
		case DEVICE:
			err = add_drive(&options, optarg);
			break;
		case ROWS_FD:
			options.rows_fd = atoi(optarg);
			break;
		case RESERVE_FD:
			options.reserve_fd = atoi(optarg);
			break;
		case PROGRAMS:
			options.kind = strcmp(optarg, "auto") ? optarg : NULL;
			break;
		case RING_BYTES:
			err = set_ring_bytes(&options, optarg);
			break;
		case FILES:
			options.files = true;
			break;
		case OWN_PID:
			err = add_own_pid(&options, optarg);
			break;
		case OWN_CGROUP:
			options.own = true;
			options.own_cgroup = optarg;
			break;
		case OWN_ONLY:
			options.own_only = true;
			break;
		case WITHOUT_IO_START:
			options.without_io_start = true;
			break;
		case LIVE:
			options.live_ms = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case SYNTHETIC:
			options.synthetic_per_second = strtoull(optarg, NULL, 10);
			break;
		case SYNTHETIC_COUNT:
			options.synthetic_count = strtoull(optarg, NULL, 10);
			break;
		case PROBE:
			probe = true;
			break;
		case VERBOSE:
			programs_be_verbose();
			break;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (err)
		return 1;
	if (!probe && (!options.drive_count || options.rows_fd < 0)) {
		fputs(usage, stderr);
		return 2;
	}
	return probe ? session_probe(&options) : session_run(&options);
}
