/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blkreel-replay: reads a plan from stdin, issues it on a target, writes what
 * became of each row to stdout. It talks to `blkreel`, not to people: blocks
 * of columns as traces/native/blocks.h states them.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blocks.h"
#include "engine.h"
#include "host.h"
#include "message.h"

#define MAX_DEPTH 16384

static struct stop stop;

struct options {
	struct target_options target;
	bool null_target;
	unsigned depth;
	unsigned max_errors;
	uint64_t seed;
	int64_t spin_ns;
	int cpu;
	bool realtime;
	bool plain;
	int64_t null_fail_row;
	int null_fail_errno;
};

static const char usage[] =
	"usage: blkreel-replay [options] TARGET     (a plan on stdin, records on stdout)\n"
	"       blkreel-replay --nil BYTES [options]\n"
	"  --depth N         at most N rows outstanding (1024)\n"
	"  --may-write       open the target for writing; without it only reads are issued\n"
	"  --buffered        through the page cache instead of direct I/O\n"
	"  --shared          do not claim a block device for this run alone\n"
	"  --seed N          of the data written (0)\n"
	"  --cpu N           issue from this processor (the last one; any, where no row has a deadline)\n"
	"  --spin-ns N       spin, not sleep, so long before a deadline (100000)\n"
	"  --realtime        ask for real-time scheduling\n"
	"  --max-errors N    end after N failed rows in a row; 0: never (1000)\n"
	"  --plain           none of the kernel's newer help\n"
	"  --nil BYTES       no I/O: a target of that size that completes at once\n"
	"  --nil-fail ROW,ERRNO  from that source row on it fails\n";

enum long_option {
	OPT_DEPTH = 256,
	OPT_MAY_WRITE,
	OPT_BUFFERED,
	OPT_SHARED,
	OPT_SEED,
	OPT_CPU,
	OPT_SPIN_NS,
	OPT_REALTIME,
	OPT_MAX_ERRORS,
	OPT_PLAIN,
	OPT_NIL,
	OPT_NIL_FAIL,
};

static const struct option long_options[] = {
	{ "depth", required_argument, NULL, OPT_DEPTH },
	{ "may-write", no_argument, NULL, OPT_MAY_WRITE },
	{ "buffered", no_argument, NULL, OPT_BUFFERED },
	{ "shared", no_argument, NULL, OPT_SHARED },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "cpu", required_argument, NULL, OPT_CPU },
	{ "spin-ns", required_argument, NULL, OPT_SPIN_NS },
	{ "realtime", no_argument, NULL, OPT_REALTIME },
	{ "max-errors", required_argument, NULL, OPT_MAX_ERRORS },
	{ "plain", no_argument, NULL, OPT_PLAIN },
	{ "nil", required_argument, NULL, OPT_NIL },
	{ "nil-fail", required_argument, NULL, OPT_NIL_FAIL },
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

static bool parse_option(struct options *options, int option)
{
	long long n;

	switch (option) {
	case OPT_DEPTH:
		return parse_number(optarg, 1, MAX_DEPTH, &n) && (options->depth = n, true);
	case OPT_MAX_ERRORS:
		return parse_number(optarg, 0, INT32_MAX, &n) && (options->max_errors = n, true);
	case OPT_SEED:
		return parse_number(optarg, 0, INT64_MAX, &n) && (options->seed = n, true);
	case OPT_CPU:
		return parse_number(optarg, 0, INT16_MAX, &n) && (options->cpu = n, true);
	case OPT_SPIN_NS:
		return parse_number(optarg, 0, INT64_MAX, &n) && (options->spin_ns = n, true);
	case OPT_NIL:
		options->null_target = true;
		return parse_number(optarg, 1, INT64_MAX, &n) && (options->target.null_size_bytes = n, true);
	case OPT_NIL_FAIL: {
		char row[32] = "";

		return sscanf(optarg, "%31[0-9],%d", row, &options->null_fail_errno) == 2 &&
		       parse_number(row, 0, INT64_MAX, &n) && (options->null_fail_row = n, true);
	}
	case OPT_MAY_WRITE:
		return options->target.may_write = true;
	case OPT_BUFFERED:
		options->target.direct = false;
		return true;
	case OPT_SHARED:
		options->target.exclusive = false;
		return true;
	case OPT_REALTIME:
		return options->realtime = true;
	case OPT_PLAIN:
		return options->plain = true;
	default:
		return false;
	}
}

static bool parse_options(struct options *options, int argc, char **argv)
{
	int option, which;

	*options = (struct options){
		.target = { .direct = true, .exclusive = true },
		.depth = 1024,
		.max_errors = 1000,
		.spin_ns = 100000,
		.cpu = -1,
		.null_fail_row = -1,
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
	if (argc - optind != !options->null_target) {
		fputs(usage, stderr);
		return false;
	}
	options->target.path = argv[optind];
	return true;
}

static void on_signal(int signal)
{
	(void)signal;
	stop_ask(&stop, STOP_SIGNAL);
}

/* Threads started from here on have the signals blocked: they reach the issuing thread and end its sleep. */
static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void block_signals(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(how, &set, NULL);
}

/* Why the run ended early, for its end block. NULL: it did not. */
static const char *why_stopped(const struct engine *engine, char *text, size_t size)
{
	int err = -engine->totals.first_error;

	switch (stop_asked(&stop)) {
	case STOP_NONE:
		return engine->totals.abandoned ? "the target did not answer" : NULL;
	case STOP_SIGNAL:
		return "interrupted";
	case STOP_OUTPUT_CLOSED:
		return "nobody reads the records";
	case STOP_PLAN_CUT_OFF:
		return "the plan broke off";
	case STOP_PLAN_REFUSED:
		return engine->plan->refusal;
	case STOP_DEVICE_LOST:
		return "the drive is gone";
	case STOP_ERRORS:
		snprintf(text, size, "%u I/Os in a row failed (%s)", engine->max_errors, strerror(err));
		return text;
	case STOP_FAILED:
		snprintf(text, size, "io_uring failed: %s", strerror(err));
		return text;
	}
	return "unknown";
}

static int finish(struct engine *engine, const struct options *options, int cpu, bool locked, bool realtime)
{
	char text[160];
	const struct watch *const watches[] = { &engine->watch };
	struct circumstances how = {
		.target = engine->target,
		.features = engine->issuer->features(engine->issuer),
		.stopped = why_stopped(engine, text, sizeof(text)),
		.planned = engine->plan->rows_read,
		.depth = engine->depth,
		.cpu = cpu,
		.memory_locked = locked,
		.realtime = realtime,
		.seed = options->seed,
		.watches = watches,
		.watch_count = 1,
	};
	char *json = totals_json(&engine->totals, &how);
	int err = -ENOMEM;

	if (records_finish(engine->records) && json)
		err = block_write_json(STDOUT_FILENO, BLOCK_END, json);
	free(json);
	switch (stop_asked(&stop)) {
	case STOP_PLAN_REFUSED:
		complain("%s; nothing of that block was issued, and the plan must be made anew for this target",
			 engine->plan->refusal);
		return EXIT_REFUSED;
	case STOP_FAILED:
		complain("%s", how.stopped);
		return EXIT_FAILED;
	default:
		return err ? EXIT_FAILED : EXIT_DONE;
	}
}

static int replay(const struct options *options, const struct target *target, int cpu)
{
	static struct plan plan;
	static struct records records;
	static struct progress progress;
	static struct payload payload;
	static struct witness witness;
	struct issuer_options issuer_options = {
		.target = target,
		.payload = &payload,
		.depth = options->depth,
		.plain = options->plain,
		.helper_cpu_besides = cpu,
		.null_fail_row = options->null_fail_row,
		.null_fail_errno = options->null_fail_errno,
	};
	struct engine engine = {
		.plan = &plan,
		.records = &records,
		.target = target,
		.progress = &progress,
		.stop = &stop,
		.depth = options->depth,
		.spin_ns = options->spin_ns,
		.max_errors = options->max_errors,
	};
	bool locked, pinned, realtime;
	int err;

	block_signals(SIG_BLOCK);
	host_keep_off_cpu(cpu);
	err = options->null_target ? 0 : payload_init(&payload, options->seed, target->may_write);
	if (!err)
		err = witness_start(&witness);
	if (!err)
		err = engine_init(&engine);
	if (!err)
		err = records_start(&records, STDOUT_FILENO, &progress, &stop);
	if (!err)
		err = plan_start(&plan, STDIN_FILENO, target, &stop);
	if (err) {
		complain("cannot set up the run: %s", strerror(-err));
		return EXIT_FAILED;
	}
	/* The ring belongs to the thread that makes it; its kernel threads stay off the processor we spin on. */
	engine.issuer = options->null_target ? null_issuer(&issuer_options) : uring_issuer(&issuer_options);
	if (!engine.issuer)
		return EXIT_FAILED;
	watch_init(&engine.watch, &witness);
	locked = host_lock_memory();
	block_signals(SIG_UNBLOCK);
	plan_wait_loaded(&plan);
	/*
	 * To meet a deadline it must be there already; without deadlines it does better where the scheduler
	 * puts it, beside whatever completes the I/O.
	 */
	pinned = options->cpu >= 0 || plan_is_timed(&plan);
	if (pinned)
		host_pin(cpu);
	else
		host_unpin();
	realtime = host_raise_priority(options->realtime);
	engine_run(&engine);
	return finish(&engine, options, pinned ? cpu : -1, locked, realtime);
}

int main(int argc, char **argv)
{
	struct options options;
	struct target target;
	int cpu, code;

	if (!parse_options(&options, argc, argv))
		return EXIT_WRONG_USAGE;
	cpu = host_choose_cpu(options.cpu);
	if (cpu < 0) {
		complain("processor %d is not one this process may use; leave --cpu out", options.cpu);
		return EXIT_WRONG_USAGE;
	}
	catch_signals();
	code = target_open(&target, &options.target);
	if (!code)
		code = replay(&options, &target, cpu);
	/* Not exit(): threads that wait for a pipe or a drive must not hold the end. */
	fflush(NULL);
	_exit(code);
}
