/* SPDX-License-Identifier: GPL-2.0-or-later */
/* blkreel-replay: issues plans on targets and writes a record of each row to stdout. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "confine.h"
#include "error.h"
#include "exit_code.h"
#include "host.h"
#include "options.h"
#include "run.h"
#include "simulated/drive_model.h"

/* File scope, because a signal handler takes no argument. */
static struct stop stop;

struct options {
	struct run_options run;
	struct target_options target; /* the same for all targets, except for the path and these two */
	bool may_write[MAX_TARGETS];
	struct claimed claimed[MAX_TARGETS];
	unsigned claimed_count;
	struct write_support write_support[MAX_TARGETS];
	int compares_fd[MAX_TARGETS];
	unsigned nil_targets;
	int simulated[MAX_TARGETS]; /* file descriptors of drive descriptions */
	unsigned simulated_count;
};

static const char usage[] =
	"usage: blkreel-replay [options] TARGET...  (writes records to stdout)\n"
	"       blkreel-replay --nil BYTES [options]\n"
	"  --lane FD,DEPTH,THREAD[,background|,start=NS][,processors=N]  read a plan from FD, issue it at its own depth;\n"
	"                    once for each plan. start: no row before this time. processors: that its rows share.\n"
	"                    A background lane ends when all others have, and shares its thread with another lane\n"
	"  --stop-ns N       issue nothing later than N after the start\n"
	"  --may-write INDEX  open that target (from 0) for writing; the others get only reads and flushes\n"
	"  --claimed FD,EXCLUSIVE,DEVICE,INODE,NODE,DISKSEQ  open the TARGET from FD if its identity is the given one;\n"
	"                    the descriptor EXCLUSIVE claims it until its last I/O is done; once for each target\n"
	"  --write-support INDEX,MIN,MAX,VERIFY[,FD...]  that target takes atomic writes of MIN to MAX bytes, verify\n"
	"                    commands of up to VERIFY bytes, and each write hint by its descriptor, in the order of the kernel\n"
	"  --compare-data INDEX,FD  the memory FD holds the data of that target's compares; without it they are dropped\n"
	"  --seed N          seed of written data (0)\n"
	"  --compressible P  percent of written data that a compressor removes (0)\n"
	"  --duplicates P    percent of written 4 KiB blocks that are copies of others (0)\n"
	"  --turnaround-ns N  what the issuing thread needs between dependent rows, which their delays have already (0)\n"
	"  --realtime        request real-time scheduling\n"
	"  --polled          poll the drive for completions instead of using interrupts\n"
	"  --passthrough     send NVMe commands through the character device of each target, a namespace\n"
	"  --plain           use no io_uring feature newer than Linux 5.11\n"
	"  --nil BYTES       issue to a target of that size that completes at once, without I/O\n"
	"  --nil-targets N   number of nil targets (1)\n"
	"  --simulate FD     simulate a drive, described in FD as lines of `name value`; once for each target\n"
	"  --virtual-clock   run on the clock of the simulated drives, without waiting\n";

/* These return 0, or EXIT_WRONG_USAGE for an invalid argument. */
static int add_lane(void *context, const char *text)
{
	struct run_options *run = context;
	struct lane_options lane = { 0 };
	int end = 0, tail = 0;

	if (run->lane_count == MAX_LANES || sscanf(text, "%d,%u,%u%n", &lane.fd, &lane.depth, &lane.thread, &end) != 3)
		return EXIT_WRONG_USAGE;
	lane.background = !strcmp(text + end, ",background");
	if (sscanf(text + end, ",start=%" SCNd64 "%n", &lane.start_ns, &tail) == 1 && lane.start_ns >= 0)
		end += tail;
	if (sscanf(text + end, ",processors=%u%n", &lane.processors, &tail) == 1)
		end += tail;
	if (text[end] && !lane.background)
		return EXIT_WRONG_USAGE;
	if (lane.fd < 0 || !lane.depth || lane.depth > MAX_DEPTH || lane.thread >= MAX_THREADS)
		return EXIT_WRONG_USAGE;
	run->lanes[run->lane_count++] = lane;
	return 0;
}

static int add_claimed(void *context, const char *text)
{
	struct options *options = context;
	struct claimed claimed = { 0 };
	int end = 0;

	if (options->claimed_count == MAX_TARGETS ||
	    sscanf(text, "%d,%d,%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 "%n", &claimed.fd, &claimed.exclusive_fd,
		   &claimed.device, &claimed.inode, &claimed.node, &claimed.diskseq, &end) != 6 || text[end] ||
	    claimed.fd < 0 || claimed.exclusive_fd < 0)
		return EXIT_WRONG_USAGE;
	options->claimed[options->claimed_count++] = claimed;
	return 0;
}

static int add_may_write(void *context, const char *text)
{
	struct options *options = context;
	int64_t index;

	if (!parse_number(text, 0, MAX_TARGETS - 1, &index))
		return EXIT_WRONG_USAGE;
	options->may_write[index] = true;
	return 0;
}

static int add_write_support(void *context, const char *text)
{
	struct options *options = context;
	struct write_support support = { 0 };
	int *fds = support.hint_fds, end = 0, tail = 0;
	unsigned index;

	if (sscanf(text, "%u,%" SCNd64 ",%" SCNd64 ",%" SCNd64 "%n", &index, &support.atomic_min_bytes,
		   &support.atomic_max_bytes, &support.verify_max_bytes, &end) != 4 || index >= MAX_TARGETS ||
	    support.atomic_min_bytes < 0 || support.atomic_max_bytes < 0 || support.verify_max_bytes < 0)
		return EXIT_WRONG_USAGE;
	_Static_assert(HINT_COUNT == 5, "one %d for each hint");
	if (text[end] && (sscanf(text + end, ",%d,%d,%d,%d,%d%n", &fds[0], &fds[1], &fds[2], &fds[3], &fds[4], &tail) !=
			  HINT_COUNT || text[end + tail]))
		return EXIT_WRONG_USAGE;
	support.hinted = text[end];
	options->write_support[index] = support;
	return 0;
}

static int add_compare_data(void *context, const char *text)
{
	struct options *options = context;
	unsigned index;
	int fd, end = 0;

	if (sscanf(text, "%u,%d%n", &index, &fd, &end) != 2 || text[end] || index >= MAX_TARGETS || fd <= 0)
		return EXIT_WRONG_USAGE;
	options->compares_fd[index] = fd;
	return 0;
}

static int set_nil(void *context, const char *size_bytes)
{
	struct options *options = context;

	options->run.nil_targets = true;
	return parse_number(size_bytes, 1, INT64_MAX, &options->target.nil_size_bytes) ? 0 : EXIT_WRONG_USAGE;
}

static int add_simulated(void *context, const char *text)
{
	struct options *options = context;
	int64_t fd;

	if (options->simulated_count == MAX_TARGETS || !parse_number(text, 0, INT32_MAX, &fd))
		return EXIT_WRONG_USAGE;
	options->simulated[options->simulated_count++] = (int)fd;
	return 0;
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
			report_error("give it a foreground lane", "thread %u has only background lanes", t);
		else
			report_error("number the threads of --lane from 0 without gaps", "thread %u has no lane", t);
		return false;
	}
	if (depth <= MAX_DEPTH)
		return true;
	report_error(NULL, "the lanes have a total depth of %u; use at most %d", depth, MAX_DEPTH);
	return false;
}

static bool check_simulated(const struct options *options)
{
	const struct run_options *run = &options->run;

	if (!options->simulated_count && !run->virtual_clock)
		return true;
	if (!run->nil_targets || options->simulated_count != run->target_count) {
		report_error("give each target a --simulate", "%u targets and %u simulated drives", run->target_count,
			     options->simulated_count);
		return false;
	}
	for (unsigned i = 0; i < run->lane_count; i++) {
		if (!run->lanes[i].thread)
			continue;
		report_error("use --threads 1", "a simulated drive requires one issuing thread");
		return false;
	}
	return true;
}

static bool read_options(struct options *options, int argc, char **argv)
{
	struct run_options *run = &options->run;
	const struct option_entry entries[] = {
		CALL_OPTION("lane", add_lane, run),
		NUMBER_OPTION("stop-ns", run->stop_ns, 0, INT64_MAX),
		CALL_OPTION("may-write", add_may_write, options),
		CALL_OPTION("claimed", add_claimed, options),
		CALL_OPTION("write-support", add_write_support, options),
		CALL_OPTION("compare-data", add_compare_data, options),
		NUMBER_OPTION("seed", run->payload.seed, 0, INT64_MAX),
		NUMBER_OPTION("compressible", run->payload.compressible_percent, 0, 100),
		NUMBER_OPTION("duplicates", run->payload.duplicates_percent, 0, 100),
		NUMBER_OPTION("turnaround-ns", run->turnaround_ns, 0, INT32_MAX),
		FLAG_OPTION("realtime", run->realtime),
		FLAG_OPTION("plain", run->plain),
		FLAG_OPTION("polled", run->polled),
		FLAG_OPTION("passthrough", options->target.passthrough),
		CALL_OPTION("nil", set_nil, options),
		NUMBER_OPTION("nil-targets", options->nil_targets, 1, MAX_TARGETS),
		CALL_OPTION("simulate", add_simulated, options),
		FLAG_OPTION("virtual-clock", run->virtual_clock),
		{ 0 },
	};

	*options = (struct options){
		.nil_targets = 1,
		.run = { .stop_ns = INT64_MAX },
	};
	if (parse_options(argc, argv, entries, usage))
		return false;
	options->target.polled = run->polled;
	options->run.target_count = options->run.nil_targets ? options->nil_targets : (unsigned)(argc - optind);
	if (!run->lane_count || !options->run.target_count || (options->run.nil_targets && argc > optind)) {
		fputs(usage, stderr);
		return false;
	}
	if (!options->run.nil_targets && options->claimed_count != options->run.target_count) {
		report_error("give each target a --claimed", "%u targets and %u claims", options->run.target_count,
			     options->claimed_count);
		return false;
	}
	return check_lanes(&options->run) && check_simulated(options);
}

static void on_signal(int signal)
{
	(void)signal;
	stop_request(&stop, STOP_SIGNAL);
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
static int open_targets(struct target *targets, unsigned *opened, const struct options *options, char **paths)
{
	struct target_options target_options = options->target;

	for (unsigned i = 0; i < options->run.target_count; i++, ++*opened) {
		int code;

		target_options.path = options->run.nil_targets ? NULL : paths[i];
		target_options.may_write = options->may_write[i];
		target_options.claimed = &options->claimed[i];
		target_options.write_support = options->write_support[i];
		target_options.compares_fd = options->compares_fd[i];
		code = target_open(&targets[i], &target_options);
		if (code)
			return code;
	}
	return 0;
}

/* Returns 0 or an exit code. */
static int read_drives(struct drive *drives, struct options *options)
{
	for (unsigned i = 0; i < options->simulated_count; i++) {
		FILE *file CLEANUP_FCLOSE = fdopen(options->simulated[i], "r");
		char why[96];

		if (!file)
			snprintf(why, sizeof(why), "%s", strerror(errno));
		if (!file || !drive_read(&drives[i], file, why, sizeof(why))) {
			report_error(NULL, "cannot simulate the drive: %s", why);
			return EXIT_WRONG_USAGE;
		}
	}
	options->run.drives = options->simulated_count ? drives : NULL;
	return 0;
}

/* Returns 0 or an exit code. */
static int give_up_privilege(const struct options *options)
{
	int err;

	if (options->run.realtime)
		host_raise_session();
	err = confine_process(options->target.passthrough);
	if (err)
		report_error(NULL, "cannot give up privileges: %s", strerror(-err));
	return err ? EXIT_FAILED : 0;
}

int main(int argc, char **argv)
{
	/* Too large for the stack. */
	static struct target targets[MAX_TARGETS];
	static struct drive drives[MAX_TARGETS];
	static struct host_cpus cpus;
	struct options options;
	unsigned opened = 0;
	int code;

	if (!read_options(&options, argc, argv))
		return EXIT_WRONG_USAGE;
	if (!host_cpus_init(&cpus)) {
		report_error(NULL, "cannot read the allowed CPUs: %s", strerror(errno));
		return EXIT_FAILED;
	}
	catch_signals();
	host_limit_stacks();
	options.run.targets = targets;
	options.run.cpus = &cpus;
	code = open_targets(targets, &opened, &options, argv + optind);
	if (!code)
		code = read_drives(drives, &options);
	if (!code)
		code = give_up_privilege(&options);
	if (!code)
		code = run_replay(&options.run, &stop);
	for (unsigned i = 0; i < opened; i++)
		target_close(&targets[i]);
	/* exit() would wait for threads that are blocked by a pipe or a drive. */
	fflush(NULL);
	_exit(code);
}
