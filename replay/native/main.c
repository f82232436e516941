/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blkreel-replay: reads a plan from stdin, issues it on a target, writes what
 * became of each row to stdout. It talks to `blkreel`, not to people: blocks
 * of columns as traces/native/blocks.h states them.
 */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drive_model.h"
#include "host.h"
#include "message.h"
#include "run.h"

#define THREAD_STACK_BYTES (256u << 10)

static struct stop stop;

struct options {
	struct run_options run;
	struct target_options target; /* all targets are opened alike */
	unsigned depth;
	unsigned null_targets;
	int simulated[MAX_TARGETS]; /* file descriptors of what is simulated */
	unsigned simulated_count;
};

static const char usage[] =
	"usage: blkreel-replay [options] TARGET...  (a plan on stdin, records on stdout)\n"
	"       blkreel-replay --nil BYTES [options]\n"
	"  --depth N         at most N rows outstanding (1024)\n"
	"  --lane FD,DEPTH,THREAD[,background]  a plan read from that file descriptor, at a depth of its own;\n"
	"                    as often as there are plans, instead of stdin and --depth. One in the background\n"
	"                    ends when all others have, and shares its thread with another\n"
	"  --stop-ns N       issue nothing later than that after the start\n"
	"  --may-write       open the target for writing; without it only reads are issued\n"
	"  --buffered        through the page cache instead of direct I/O\n"
	"  --shared          do not claim a block device for this run alone\n"
	"  --seed N          of the data written (0)\n"
	"  --compressible P  percent of the data written that a compressor takes away (0)\n"
	"  --duplicates P    percent of the 4 KiB blocks written that are copies of others (0)\n"
	"  --cpu N           issue from this processor (the last one; any, where no row has a deadline)\n"
	"  --spin-ns N       spin, not sleep, so long before a deadline (100000)\n"
	"  --realtime        ask for real-time scheduling\n"
	"  --max-errors N    end after N failed rows in a row; 0: never (1000)\n"
	"  --polled          look for completions at the drive instead of waiting for interrupts\n"
	"  --plain           none of the kernel's newer help\n"
	"  --nil BYTES       no I/O: a target of that size that completes at once\n"
	"  --nil-targets N   so many of them (1)\n"
	"  --simulate FD     a drive instead, of the parameters and the state read from there (`name value`\n"
	"                    lines); once for each target\n"
	"  --virtual-clock   the time of the simulated drives, which does not wait\n"
	"  --nil-fail ROW,ERRNO  from that source row on it fails\n";

enum long_option {
	OPT_DEPTH = 256,
	OPT_LANE,
	OPT_STOP_NS,
	OPT_MAY_WRITE,
	OPT_BUFFERED,
	OPT_SHARED,
	OPT_SEED,
	OPT_COMPRESSIBLE,
	OPT_DUPLICATES,
	OPT_CPU,
	OPT_SPIN_NS,
	OPT_REALTIME,
	OPT_MAX_ERRORS,
	OPT_PLAIN,
	OPT_POLLED,
	OPT_NIL,
	OPT_NIL_TARGETS,
	OPT_NIL_FAIL,
	OPT_SIMULATE,
	OPT_VIRTUAL_CLOCK,
};

static const struct option long_options[] = {
	{ "depth", required_argument, NULL, OPT_DEPTH },
	{ "lane", required_argument, NULL, OPT_LANE },
	{ "stop-ns", required_argument, NULL, OPT_STOP_NS },
	{ "may-write", no_argument, NULL, OPT_MAY_WRITE },
	{ "buffered", no_argument, NULL, OPT_BUFFERED },
	{ "shared", no_argument, NULL, OPT_SHARED },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "compressible", required_argument, NULL, OPT_COMPRESSIBLE },
	{ "duplicates", required_argument, NULL, OPT_DUPLICATES },
	{ "cpu", required_argument, NULL, OPT_CPU },
	{ "spin-ns", required_argument, NULL, OPT_SPIN_NS },
	{ "realtime", no_argument, NULL, OPT_REALTIME },
	{ "max-errors", required_argument, NULL, OPT_MAX_ERRORS },
	{ "plain", no_argument, NULL, OPT_PLAIN },
	{ "polled", no_argument, NULL, OPT_POLLED },
	{ "nil", required_argument, NULL, OPT_NIL },
	{ "nil-targets", required_argument, NULL, OPT_NIL_TARGETS },
	{ "nil-fail", required_argument, NULL, OPT_NIL_FAIL },
	{ "simulate", required_argument, NULL, OPT_SIMULATE },
	{ "virtual-clock", no_argument, NULL, OPT_VIRTUAL_CLOCK },
	{ 0 },
};

/* A whole number within bounds. */
static bool parse_number(const char *text, long long least, long long most, long long *value)
{
	char *end;

	errno = 0;
	*value = strtoll(text, &end, 10);
	return !errno && end != text && !*end && *value >= least && *value <= most;
}

static bool parse_lane(struct run_options *run, const char *text)
{
	struct lane_options lane = { 0 };
	int end = 0;

	if (run->lane_count == MAX_LANES || sscanf(text, "%d,%u,%u%n", &lane.fd, &lane.depth, &lane.thread, &end) != 3)
		return false;
	lane.background = !strcmp(text + end, ",background");
	if (text[end] && !lane.background)
		return false;
	if (lane.fd < 0 || !lane.depth || lane.depth > MAX_DEPTH || lane.thread >= MAX_THREADS)
		return false;
	run->lanes[run->lane_count++] = lane;
	return true;
}

static bool parse_option(struct options *options, int option)
{
	long long n;

	switch (option) {
	case OPT_DEPTH:
		return parse_number(optarg, 1, MAX_DEPTH, &n) && (options->depth = n, true);
	case OPT_LANE:
		return parse_lane(&options->run, optarg);
	case OPT_STOP_NS:
		return parse_number(optarg, 0, INT64_MAX, &n) && (options->run.stop_ns = n, true);
	case OPT_MAX_ERRORS:
		return parse_number(optarg, 0, INT32_MAX, &n) && (options->run.max_errors = n, true);
	case OPT_SEED:
		return parse_number(optarg, 0, INT64_MAX, &n) && (options->run.payload.seed = n, true);
	case OPT_COMPRESSIBLE:
		return parse_number(optarg, 0, 100, &n) && (options->run.payload.compressible_percent = n, true);
	case OPT_DUPLICATES:
		return parse_number(optarg, 0, 100, &n) && (options->run.payload.duplicates_percent = n, true);
	case OPT_CPU:
		return parse_number(optarg, 0, INT16_MAX, &n) && (options->run.cpu = n, true);
	case OPT_SPIN_NS:
		return parse_number(optarg, 0, INT64_MAX, &n) && (options->run.spin_ns = n, true);
	case OPT_NIL:
		options->run.null_targets = true;
		return parse_number(optarg, 1, INT64_MAX, &n) && (options->target.null_size_bytes = n, true);
	case OPT_NIL_TARGETS:
		return parse_number(optarg, 1, MAX_TARGETS, &n) && (options->null_targets = n, true);
	case OPT_NIL_FAIL: {
		char row[32] = "";

		return sscanf(optarg, "%31[0-9],%d", row, &options->run.null_fail_errno) == 2 &&
		       parse_number(row, 0, INT64_MAX, &n) && (options->run.null_fail_row = n, true);
	}
	case OPT_SIMULATE:
		return options->simulated_count < MAX_TARGETS && parse_number(optarg, 0, INT32_MAX, &n) &&
		       (options->simulated[options->simulated_count++] = n, true);
	case OPT_VIRTUAL_CLOCK:
		return options->run.virtual_clock = true;
	case OPT_MAY_WRITE:
		return options->target.may_write = true;
	case OPT_BUFFERED:
		options->target.direct = false;
		return true;
	case OPT_SHARED:
		options->target.exclusive = false;
		return true;
	case OPT_REALTIME:
		return options->run.realtime = true;
	case OPT_PLAIN:
		return options->run.plain = true;
	case OPT_POLLED:
		return options->run.polled = options->target.polled = true;
	default:
		return false;
	}
}

static bool check_lanes(const struct run_options *run)
{
	unsigned of_thread[MAX_THREADS] = { 0 }, foreground[MAX_THREADS] = { 0 };
	unsigned depth = 0, threads = 0;

	for (unsigned i = 0; i < run->lane_count; i++) {
		depth += run->lanes[i].depth;
		of_thread[run->lanes[i].thread]++;
		foreground[run->lanes[i].thread] += !run->lanes[i].background;
		if (run->lanes[i].thread >= threads)
			threads = run->lanes[i].thread + 1;
	}
	for (unsigned t = 0; t < threads; t++) {
		if (foreground[t])
			continue;
		if (of_thread[t])
			complain("thread %u has lanes in the background only; give each a thread with another lane", t);
		else
			complain("thread %u has no lane; number the threads of --lane from 0 on, without a gap", t);
		return false;
	}
	if (depth <= MAX_DEPTH)
		return true;
	complain("the lanes have a depth of %u together; use %d at most", depth, MAX_DEPTH);
	return false;
}

static bool check_simulated(const struct options *options)
{
	const struct run_options *run = &options->run;

	if (!options->simulated_count && !run->virtual_clock)
		return true;
	if (!run->null_targets || options->simulated_count != run->target_count) {
		complain("%u targets and %u drives to simulate; give each its --simulate", run->target_count,
			 options->simulated_count);
		return false;
	}
	for (unsigned i = 0; i < run->lane_count; i++) {
		if (!run->lanes[i].thread)
			continue;
		complain("a simulated drive goes with one issuing thread; use --threads 1");
		return false;
	}
	return true;
}

static bool parse_options(struct options *options, int argc, char **argv)
{
	int option, which;

	*options = (struct options){
		.target = { .direct = true, .exclusive = true },
		.depth = 1024,
		.null_targets = 1,
		.run = { .max_errors = 1000, .spin_ns = 100000, .stop_ns = INT64_MAX, .cpu = -1, .null_fail_row = -1 },
	};
	while ((option = getopt_long(argc, argv, "", long_options, &which)) >= 0) {
		if (option == '?') /* getopt has said it */
			return false;
		if (!parse_option(options, option)) {
			complain("--%s does not take %s; it is used by `blkreel replay`, which gives it what it takes",
				 long_options[which].name, optarg);
			return false;
		}
	}
	options->run.target_count = options->run.null_targets ? options->null_targets : (unsigned)(argc - optind);
	if (!options->run.target_count || (options->run.null_targets && argc > optind)) {
		fputs(usage, stderr);
		return false;
	}
	if (!options->run.lane_count)
		options->run.lanes[options->run.lane_count++] = (struct lane_options){ .depth = options->depth };
	return check_lanes(&options->run) && check_simulated(options);
}

static void on_signal(int signal)
{
	(void)signal;
	stop_ask(&stop, STOP_SIGNAL);
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* Returns 0 or an exit code. */
static int open_targets(struct target *targets, const struct options *options, char **paths)
{
	struct target_options one = options->target;

	if (options->run.target_count > MAX_TARGETS) {
		complain("a run takes at most %d targets", MAX_TARGETS);
		return EXIT_WRONG_USAGE;
	}
	for (unsigned i = 0; i < options->run.target_count; i++) {
		int code;

		one.path = options->run.null_targets ? NULL : paths[i];
		code = target_open(&targets[i], &one);
		if (code)
			return code;
	}
	return 0;
}

/* Returns 0 or an exit code. */
static int read_drives(struct options *options)
{
	static struct drive drives[MAX_TARGETS];

	for (unsigned i = 0; i < options->simulated_count; i++) {
		FILE *file = fdopen(options->simulated[i], "r");
		const char *wrong = file ? drive_read(&drives[i], file) : strerror(errno);

		if (file)
			fclose(file);
		if (wrong) {
			complain("a drive cannot be simulated: %s", wrong);
			return EXIT_WRONG_USAGE;
		}
	}
	options->run.drives = options->simulated_count ? drives : NULL;
	return 0;
}

/* What is mapped gets locked, and a thread's stack is 8 MiB of it by default. */
static void keep_stacks_small(void)
{
	pthread_attr_t attributes;

	if (pthread_attr_init(&attributes))
		return;
	if (!pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES))
		pthread_setattr_default_np(&attributes);
	pthread_attr_destroy(&attributes);
}

int main(int argc, char **argv)
{
	static struct target targets[MAX_TARGETS];
	struct options options;
	int code;

	if (!parse_options(&options, argc, argv))
		return EXIT_WRONG_USAGE;
	if (!host_choose_cpus(options.run.cpu)) {
		complain("processor %d is not one this process may use; leave --cpu out", options.run.cpu);
		return EXIT_WRONG_USAGE;
	}
	catch_signals();
	keep_stacks_small();
	options.run.targets = targets;
	code = open_targets(targets, &options, argv + optind);
	if (!code)
		code = read_drives(&options);
	if (!code)
		code = run_replay(&options.run, &stop);
	/* Not exit(): threads that wait for a pipe or a drive must not hold the end. */
	fflush(NULL);
	_exit(code);
}
