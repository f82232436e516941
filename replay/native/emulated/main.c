/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blkreel-emulate: serves an emulated drive until the end of its standard input. It prints JSON objects, one a line:
 * `ready` with the device and the calibration, `status` twice a second, `state` of the drive, and `ended`.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "backend.h"
#include "calibrate.h"
#include "cleanup.h"
#include "delay.h"
#include "error.h"
#include "image.h"
#include "options.h"
#include "run/clock.h"
#include "run/exit_code.h"
#include "run/host.h"
#include "simulated/drive_model.h"
#include "watchdog.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

#define TICK_MS 250
#define STATE_EVERY 40 /* ticks */
#define NICE (-10)

static const char usage[] =
	"usage: blkreel-emulate --drive FD --size BYTES [options] FILE\n"
	"       blkreel-emulate --remove N --inode N\n"
	"Serves an emulated drive until the end of standard input. FILE is an empty file for this drive alone.\n"
	"  --drive FD        the drive, described in FD as lines of `name value`\n"
	"  --size BYTES      size of the drive\n"
	"  --image FD        keep the data in this file, opened with O_DIRECT (in memory)\n"
	"  --inode N         identifies the contents: inode number of the mounted file (1)\n"
	"  --remove N        remove the ublk device N that a killed server left\n"
	"  --backend NAME    ublk, or fuse: mounted over FILE, with a loop device (ublk if the kernel has it)\n"
	"  --timeout S       abort the drive if it does not answer for this time (10)\n";

struct options {
	const char *path, *backend;
	int drive_fd, image_fd, remove;
	int64_t size_bytes, inode;
	unsigned timeout_s;
};

struct emulation {
	struct options options;
	struct drive drive;
	struct image image;
	struct delay delay;
	struct server server;
	struct backend *backend;
	struct watchdog watchdog;
	int signals; /* signalfd */
	bool ending;
	uint64_t ticks;
};

static bool read_options(struct options *options, int argc, char **argv)
{
	const struct option_entry entries[] = {
		NUMBER_OPTION("drive", options->drive_fd, 0, INT32_MAX),
		NUMBER_OPTION("size", options->size_bytes, 4096, INT64_MAX),
		NUMBER_OPTION("image", options->image_fd, 0, INT32_MAX),
		NUMBER_OPTION("inode", options->inode, 1, INT64_MAX),
		NUMBER_OPTION("remove", options->remove, 0, INT32_MAX),
		NUMBER_OPTION("timeout", options->timeout_s, 1, 3600),
		TEXT_OPTION("backend", options->backend),
		{ 0 },
	};

	*options = (struct options){ .drive_fd = -1, .image_fd = -1, .remove = -1, .inode = 1, .timeout_s = 10 };
	if (parse_options(argc, argv, entries, usage))
		return false;
	if (options->remove >= 0)
		return argc == optind;
	if (argc - optind == 1 && options->drive_fd >= 0 && options->size_bytes) {
		options->path = argv[optind];
		return true;
	}
	fputs(usage, stderr);
	return false;
}

/* ---- output ---- */

static const char *const kind_names[KIND_COUNT] = { "read", "write", "flush" };

static void print_check(const struct reached check[KIND_COUNT])
{
	printf("{\"asked_ns\": %lld", CHECK_ASKED_NS);
	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		printf(", \"%s\": {\"p50_ns\": %" PRId64 ", \"p99_ns\": %" PRId64 "}", kind_names[kind], check[kind].p50_ns,
		       check[kind].p99_ns);
	printf("}");
}

static void print_ready(const struct emulation *emulation, const struct calibration *calibration)
{
	printf("{\"ready\": {\"device\": \"%s\", \"backend\": \"%s\", \"times_of\": \"%s\", \"block_bytes\": %u, \"calibration\": {",
	       emulation->backend->node, emulation->backend->name, emulation->server.issue_times.ring ? "issue" : "arrival",
	       emulation->image.offset_alignment);
	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		printf("\"%s_overhead_ns\": %" PRId64 ", \"%s_return_ns\": %" PRId64 ", ", kind_names[kind],
		       calibration->overheads[kind].io_ns, kind_names[kind], calibration->return_ns[kind]);
	printf("\"read_ns_per_byte\": %.6f, \"write_ns_per_byte\": %.6f, ", calibration->overheads[KIND_READ].ns_per_byte,
	       calibration->overheads[KIND_WRITE].ns_per_byte);
	printf("\"read_iops\": %.0f, \"write_iops\": %.0f, \"read_bandwidth\": %.0f, \"write_bandwidth\": %.0f, \"check\": ",
	       calibration->read_iops, calibration->write_iops, calibration->read_bandwidth, calibration->write_bandwidth);
	print_check(calibration->check);
	printf("}}}\n");
	fflush(stdout);
}

static void print_status(struct emulation *emulation)
{
	printf("{\"status\": {");
	delay_write_status(&emulation->delay, stdout);
	printf("}}\n");
	fflush(stdout);
}

static void print_state(struct emulation *emulation)
{
	printf("{\"state\": ");
	delay_write_state(&emulation->delay, stdout);
	printf("}\n");
	fflush(stdout);
}

/* ---- begin ---- */

static int read_drive(struct emulation *emulation)
{
	FILE *file CLEANUP_FCLOSE = fdopen(emulation->options.drive_fd, "r");
	char why[96];
	int err;

	if (!file)
		snprintf(why, sizeof(why), "%s", strerror(errno));
	if (!file || !drive_read(&emulation->drive, file, why, sizeof(why)))
		return report_error(NULL, "cannot emulate the drive: %s", why);
	err = drive_init(&emulation->drive);
	return err ? report_error(NULL, "cannot emulate the drive: %s", strerror(-err)) : 0;
}

/* Each of these improves the timing or the safety, and the drive works without it. */
static void tune_process(void)
{
	static const int32_t no_latency;
	/* Open until the end, since closing it ends the request: deep sleep of a processor adds 16 us to each I/O. */
	int fd = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, &no_latency, sizeof(no_latency)) < 0)
		close(fd);
	/* Memory that this process needs must not wait for the write-back of pages to its own drive. */
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
	setpriority(PRIO_PROCESS, 0, NICE);
}

static int catch_signals(struct emulation *emulation)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGPIPE);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	sigdelset(&signals, SIGPIPE);
	emulation->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	return emulation->signals < 0 ? report_error(NULL, "cannot receive signals: %s", strerror(errno)) : 0;
}

static int make_image(struct emulation *emulation)
{
	int err = image_init(&emulation->image, emulation->options.size_bytes, emulation->options.image_fd);

	return err ? report_error("keep the data in a file: --image FILE; or allow programs to lock memory: ulimit -l unlimited",
				  "cannot lock %" PRId64 " MiB of memory for the drive: %s",
				  emulation->options.size_bytes >> 20, strerror(-err)) : 0;
}

static struct backend *chosen_backend(const struct options *options)
{
	bool ublk = options->backend ? !strcmp(options->backend, "ublk") : ublk_is_supported();

	return ublk ? ublk_backend() : fuse_backend();
}

/* only_check: with nobody else on the drive: its I/Os would be completed at the time of the calibration. */
static int measure(struct emulation *emulation, bool only_check, struct calibration *calibration)
{
	int fd CLEANUP_CLOSE = open(emulation->backend->node, O_RDWR | O_DIRECT | O_CLOEXEC | (only_check ? O_EXCL : 0));
	const struct calibration_target target = { fd, emulation->options.size_bytes, emulation->server.mark,
						   &emulation->delay };
	int err;

	if (fd < 0)
		return -errno;
	atomic_store(&emulation->server.calibrating, true);
	err = calibrate(&target, only_check, calibration);
	atomic_store(&emulation->server.calibrating, false);
	emulation->image.untouched = false;
	return err;
}

static int measure_all(struct emulation *emulation)
{
	struct calibration calibration;
	int err = measure(emulation, false, &calibration);

	if (err == -EPERM || err == -ENOSYS) /* of no other call */
		return report_error(IO_URING_REMEDY, "io_uring is not available: %s", strerror(-err));
	if (err)
		return report_error(NULL, "cannot calibrate the emulated drive: %s", strerror(-err));
	print_ready(emulation, &calibration);
	return 0;
}

static void check_again(struct emulation *emulation)
{
	struct calibration calibration;

	printf("{\"check\": ");
	if (!measure(emulation, true, &calibration))
		print_check(calibration.check);
	else
		printf("null");
	printf("}\n");
	fflush(stdout);
}

/* ---- until the end ---- */

static void end(struct emulation *emulation)
{
	emulation->ending = true;
	if (emulation->backend->begin_end)
		emulation->backend->begin_end(emulation->backend);
}

static void take_commands(struct emulation *emulation)
{
	char text[64];
	ssize_t bytes = read(STDIN_FILENO, text, sizeof(text));

	if (bytes <= 0)
		end(emulation);
	else if (memchr(text, 'c', bytes))
		check_again(emulation);
}

static void take_signal(struct emulation *emulation)
{
	struct signalfd_siginfo signal;

	if (read(emulation->signals, &signal, sizeof(signal)) == sizeof(signal))
		end(emulation);
}

/* A second thread, so that a calibration or a blocked pipe does not look like a server that hangs. */
static void *beat(void *argument)
{
	struct emulation *emulation = argument;

	while (!atomic_load(&emulation->backend->ended)) {
		atomic_fetch_add(&emulation->watchdog.shared->beat, 1);
		atomic_store(&emulation->watchdog.shared->oldest_ns, atomic_load(&emulation->delay.oldest_ns));
		sleep_ns(TICK_MS * NS_PER_MS);
	}
	return NULL;
}

/* Returns false if the connection was aborted. */
static bool serve(struct emulation *emulation)
{
	struct pollfd inputs[2] = { { STDIN_FILENO, POLLIN }, { emulation->signals, POLLIN } };

	while (!emulation->ending || emulation->backend->is_open(emulation->backend)) {
		poll(emulation->ending ? inputs + 1 : inputs, emulation->ending ? 1 : 2, TICK_MS);
		if (atomic_load(&emulation->backend->ended))
			return false;
		if (!emulation->ending && inputs[0].revents)
			take_commands(emulation);
		if (inputs[1].revents)
			take_signal(emulation);
		if (++emulation->ticks % 2 == 0)
			print_status(emulation);
		if (emulation->ticks % STATE_EVERY == 0)
			print_state(emulation);
	}
	return true;
}

static int run(struct emulation *emulation)
{
	pthread_t heart;
	int err = server_start(&emulation->server, &emulation->delay, &emulation->image);

	if (!err)
		err = -pthread_create(&heart, NULL, beat, emulation);
	if (err)
		return report_error(NULL, "cannot start the threads of the drive: %s", strerror(-err));
	issue_times_begin(&emulation->server.issue_times, &emulation->delay);
	if (emulation->backend->attach(emulation->backend, &emulation->server, emulation->watchdog.shared))
		return -1;
	issue_times_of(&emulation->server.issue_times, emulation->backend->node);
	if (measure_all(emulation))
		return -1;
	return serve(emulation) ? 0 : -1;
}

/* Returns an exit code. */
static int serve_opened(struct emulation *emulation)
{
	int code;

	if (watchdog_start(&emulation->watchdog, emulation->backend, emulation->options.timeout_s))
		return EXIT_FAILED;
	mlockall(MCL_CURRENT | MCL_FUTURE);
	code = run(emulation) ? EXIT_FAILED : EXIT_DONE;
	emulation->backend->end(emulation->backend);
	if (image_is_file(&emulation->image) && image_file_flush(&emulation->image))
		code = EXIT_FAILED;
	delay_end(&emulation->delay);
	print_status(emulation);
	print_state(emulation);
	watchdog_stop(&emulation->watchdog);
	return code;
}

int main(int argc, char **argv)
{
	static struct emulation emulation; /* too large for the stack */
	int code;

	if (!read_options(&emulation.options, argc, argv))
		return EXIT_WRONG_USAGE;
	if (emulation.options.remove >= 0) {
		ublk_remove((unsigned)emulation.options.remove, (uint64_t)emulation.options.inode);
		return EXIT_DONE;
	}
	host_limit_stacks();
	tune_process();
	emulation.backend = chosen_backend(&emulation.options);
	if (catch_signals(&emulation) || read_drive(&emulation) || make_image(&emulation))
		return EXIT_FAILED;
	if (delay_init(&emulation.delay, &emulation.drive, image_is_file(&emulation.image) ? DELAY_FILE_SLOTS : DELAY_SLOTS)) {
		report_error(NULL, "cannot emulate the drive: out of memory");
		return EXIT_FAILED;
	}
	if (emulation.backend->open(emulation.backend, emulation.options.path, (uint64_t)emulation.options.inode))
		return EXIT_FAILED;
	code = serve_opened(&emulation);
	/* exit() would wait for threads that are blocked by a pipe or a disk. */
	fflush(NULL);
	_exit(code);
}
