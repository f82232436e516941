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

#include "calibrate.h"
#include "cleanup.h"
#include "delay.h"
#include "error.h"
#include "fuse.h"
#include "image.h"
#include "loop_device.h"
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
	"Serves an emulated drive, mounted over FILE, until the end of standard input.\n"
	"  --drive FD        the drive, described in FD as lines of `name value`\n"
	"  --size BYTES      size of the drive\n"
	"  --image FD        keep the data in this file, opened with O_DIRECT (in memory)\n"
	"  --inode N         inode number of the mounted file (1)\n"
	"  --timeout S       abort the drive if it does not answer for this time (10)\n";

struct options {
	const char *path;
	int drive_fd, image_fd;
	int64_t size_bytes, inode;
	unsigned timeout_s;
};

struct server {
	struct options options;
	struct drive drive;
	struct image image;
	struct delay delay;
	struct fuse_server fuse;
	struct loop_device loop;
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
		NUMBER_OPTION("timeout", options->timeout_s, 1, 3600),
		{ 0 },
	};

	*options = (struct options){ .drive_fd = -1, .image_fd = -1, .inode = 1, .timeout_s = 10 };
	if (parse_options(argc, argv, entries, usage))
		return false;
	if (argc - optind == 1 && options->drive_fd >= 0 && options->size_bytes) {
		options->path = argv[optind];
		return true;
	}
	fputs(usage, stderr);
	return false;
}

/* ---- output ---- */

static void print_reached(const char *name, const struct reached *reached)
{
	printf("\"%s\": {\"p50_ns\": %" PRId64 ", \"p99_ns\": %" PRId64 "}", name, reached->p50_ns, reached->p99_ns);
}

static void print_check(const struct reached *read, const struct reached *write)
{
	printf("{\"asked_ns\": %lld, ", CHECK_ASKED_NS);
	print_reached("read", read);
	printf(", ");
	print_reached("write", write);
	printf("}");
}

static void print_ready(const struct server *server, const struct calibration *calibration)
{
	printf("{\"ready\": {\"device\": \"%s\", \"block_bytes\": %u, \"calibration\": {"
	       "\"read_overhead_ns\": %" PRId64 ", \"read_ns_per_byte\": %.6f, \"write_overhead_ns\": %" PRId64
	       ", \"write_ns_per_byte\": %.6f, \"read_iops\": %.0f, \"write_iops\": %.0f, \"read_bandwidth\": %.0f"
	       ", \"write_bandwidth\": %.0f, \"check\": ",
	       server->loop.node, server->image.offset_alignment, calibration->read.io_ns, calibration->read.ns_per_byte,
	       calibration->write.io_ns, calibration->write.ns_per_byte, calibration->read_iops, calibration->write_iops,
	       calibration->read_bandwidth, calibration->write_bandwidth);
	print_check(&calibration->check_read, &calibration->check_write);
	printf("}}}\n");
	fflush(stdout);
}

static void print_status(struct server *server)
{
	printf("{\"status\": {");
	delay_write_status(&server->delay, stdout);
	printf("}}\n");
	fflush(stdout);
}

static void print_state(struct server *server)
{
	printf("{\"state\": ");
	delay_write_state(&server->delay, stdout);
	printf("}\n");
	fflush(stdout);
}

/* ---- begin ---- */

static int read_drive(struct server *server)
{
	FILE *file CLEANUP_FCLOSE = fdopen(server->options.drive_fd, "r");
	char why[96];
	int err;

	if (!file)
		snprintf(why, sizeof(why), "%s", strerror(errno));
	if (!file || !drive_read(&server->drive, file, why, sizeof(why)))
		return report_error(NULL, "cannot emulate the drive: %s", why);
	err = drive_init(&server->drive);
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

static int catch_signals(struct server *server)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGPIPE);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	sigdelset(&signals, SIGPIPE);
	server->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	return server->signals < 0 ? report_error(NULL, "cannot receive signals: %s", strerror(errno)) : 0;
}

static int make_image(struct server *server)
{
	int err = image_init(&server->image, server->options.size_bytes, server->options.image_fd);

	return err ? report_error(NULL, "cannot take %" PRId64 " bytes of memory for the drive: %s",
				  server->options.size_bytes, strerror(-err)) : 0;
}

static int open_device(const struct server *server, bool exclusively)
{
	return open(server->loop.node, O_RDWR | O_DIRECT | O_CLOEXEC | (exclusively ? O_EXCL : 0));
}

static struct calibration_target calibration_target(struct server *server, int fd)
{
	return (struct calibration_target){ fd, server->options.size_bytes, server->fuse.mark, &server->delay };
}

static int measure(struct server *server)
{
	int fd CLEANUP_CLOSE = open_device(server, false);
	struct calibration_target target = calibration_target(server, fd);
	struct calibration calibration;
	int err = -errno;

	if (fd >= 0) {
		atomic_store(&server->fuse.calibrating, true);
		err = calibrate(&target, &calibration);
		atomic_store(&server->fuse.calibrating, false);
		server->image.untouched = false;
	}
	if (err)
		return report_error(NULL, "cannot calibrate the emulated drive: %s", strerror(-err));
	print_ready(server, &calibration);
	return 0;
}

/* With nobody else on the drive: its I/Os would be completed at the time of the calibration. */
static void check_again(struct server *server)
{
	int fd CLEANUP_CLOSE = open_device(server, true);
	struct calibration_target target = calibration_target(server, fd);
	struct reached read, write;
	int err = -EBUSY;

	if (fd >= 0) {
		atomic_store(&server->fuse.calibrating, true);
		err = calibrate_check(&target, &read, &write);
		atomic_store(&server->fuse.calibrating, false);
	}
	printf("{\"check\": ");
	if (!err)
		print_check(&read, &write);
	else
		printf("null");
	printf("}\n");
	fflush(stdout);
}

/* ---- until the end ---- */

static void end(struct server *server)
{
	server->ending = true;
	loop_detach(&server->loop, server->options.path);
}

static void take_commands(struct server *server)
{
	char text[64];
	ssize_t bytes = read(STDIN_FILENO, text, sizeof(text));

	if (bytes <= 0)
		end(server);
	else if (memchr(text, 'c', bytes))
		check_again(server);
}

static void take_signal(struct server *server)
{
	struct signalfd_siginfo signal;

	if (read(server->signals, &signal, sizeof(signal)) == sizeof(signal))
		end(server);
}

/* A second thread, so that a calibration or a blocked pipe does not look like a server that hangs. */
static void *beat(void *argument)
{
	struct server *server = argument;

	while (!atomic_load(&server->fuse.ended)) {
		atomic_fetch_add(&server->watchdog.shared->beat, 1);
		atomic_store(&server->watchdog.shared->oldest_ns, atomic_load(&server->delay.oldest_ns));
		sleep_ns(TICK_MS * NS_PER_MS);
	}
	return NULL;
}

/* Returns false if the connection was aborted. */
static bool serve(struct server *server)
{
	struct pollfd inputs[2] = { { STDIN_FILENO, POLLIN }, { server->signals, POLLIN } };

	while (!server->ending || atomic_load(&server->fuse.opens)) {
		poll(server->ending ? inputs + 1 : inputs, server->ending ? 1 : 2, TICK_MS);
		if (atomic_load(&server->fuse.ended))
			return false;
		if (!server->ending && inputs[0].revents)
			take_commands(server);
		if (inputs[1].revents)
			take_signal(server);
		if (++server->ticks % 2 == 0)
			print_status(server);
		if (server->ticks % STATE_EVERY == 0)
			print_state(server);
	}
	return true;
}

static int run(struct server *server)
{
	pthread_t heart;
	int err = fuse_start(&server->fuse, &server->delay, &server->image);

	if (!err)
		err = -pthread_create(&heart, NULL, beat, server);
	if (err)
		return report_error(NULL, "cannot start the threads of the drive: %s", strerror(-err));
	if (loop_attach(&server->loop, server->options.path, server->image.offset_alignment))
		return -1;
	atomic_store(&server->watchdog.shared->loop_number, server->loop.number);
	if (measure(server))
		return -1;
	return serve(server) ? 0 : -1;
}

/* Returns an exit code. */
static int serve_mounted(struct server *server)
{
	int code;

	if (watchdog_start(&server->watchdog, server->fuse.fd, server->options.path, server->options.timeout_s))
		return EXIT_FAILED;
	mlockall(MCL_CURRENT | MCL_FUTURE);
	code = run(server) ? EXIT_FAILED : EXIT_DONE;
	/* Before the unmount, after which the kernel no longer names the file of the device. */
	loop_detach(&server->loop, server->options.path);
	fuse_stop(&server->fuse);
	if (image_is_file(&server->image) && image_file_flush(&server->image))
		code = EXIT_FAILED;
	delay_end(&server->delay);
	print_status(server);
	print_state(server);
	watchdog_stop(&server->watchdog);
	return code;
}

int main(int argc, char **argv)
{
	static struct server server; /* too large for the stack */
	int code;

	if (!read_options(&server.options, argc, argv))
		return EXIT_WRONG_USAGE;
	host_limit_stacks();
	tune_process();
	server.loop.number = -1;
	if (catch_signals(&server) || read_drive(&server) || make_image(&server))
		return EXIT_FAILED;
	if (delay_init(&server.delay, &server.drive, image_is_file(&server.image) ? DELAY_FILE_SLOTS : DELAY_SLOTS)) {
		report_error(NULL, "cannot emulate the drive: out of memory");
		return EXIT_FAILED;
	}
	if (fuse_mount(&server.fuse, server.options.path, (uint64_t)server.options.inode))
		return EXIT_FAILED;
	code = serve_mounted(&server);
	/* exit() would wait for threads that are blocked by a pipe or a disk. */
	fflush(NULL);
	_exit(code);
}
