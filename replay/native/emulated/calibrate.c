/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "calibrate.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "run/clock.h"
#include "transfer.h"

#define SMALL_BYTES 4096
#define LARGE_BYTES (512 << 10)
#define SMALL_IOS 150
#define LARGE_IOS 30
#define CHUNK_IOS 15
#define CHECK_IOS 300
#define LARGE_ASKED_NS 800000ll
#define WARM_UP_IOS 20
#define MAX_DEPTH 32
#define THROUGHPUT_NS 100000000ll

struct prober {
	const struct calibration_target *target;
	char *buffers; /* MAX_DEPTH of LARGE_BYTES, with the mark */
	uint64_t random;
	int64_t took_ns[CHECK_IOS];
};

static int compare_times(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* A random aligned offset, as of a program that reads here and there. */
static int64_t any_offset(struct prober *prober, int64_t length_bytes)
{
	int64_t places = prober->target->size_bytes / length_bytes;

	prober->random = prober->random * 6364136223846793005ull + 1442695040888963407ull;
	return (int64_t)(prober->random >> 33) % places * length_bytes;
}

static int64_t fit(const struct prober *prober, int64_t length_bytes)
{
	return length_bytes < prober->target->size_bytes ? length_bytes : prober->target->size_bytes / SMALL_BYTES * SMALL_BYTES;
}

static void sort_times(int64_t *times, unsigned count)
{
	qsort(times, count, sizeof(times[0]), compare_times);
}

static int do_io(struct prober *prober, enum io_kind kind, int64_t offset_bytes, int64_t length_bytes)
{
	int fd = prober->target->fd;
	ssize_t bytes;

	switch (kind) {
	case KIND_READ:
		bytes = pread(fd, prober->buffers + LARGE_BYTES, length_bytes, offset_bytes);
		break;
	case KIND_WRITE:
		bytes = pwrite(fd, prober->buffers, length_bytes, offset_bytes);
		break;
	default:
		return fsync(fd) ? -errno : 0;
	}
	return bytes == length_bytes ? 0 : bytes < 0 ? -errno : -EIO;
}

/* One I/O at a time, into took_ns. Returns 0 or a negative errno. */
static int probe_latency(struct prober *prober, enum io_kind kind, int64_t length_bytes, unsigned ios)
{
	for (unsigned i = 0; i < WARM_UP_IOS + ios; i++) {
		int64_t offset_bytes = any_offset(prober, length_bytes), begin_ns = monotonic_ns();
		int err = do_io(prober, kind, offset_bytes, length_bytes);

		if (err)
			return err;
		if (i >= WARM_UP_IOS)
			prober->took_ns[i - WARM_UP_IOS] = monotonic_ns() - begin_ns;
	}
	return 0;
}

/*
 * The lowest median of CHUNK_IOS I/Os: other work on this machine only adds to the times, and compensating what it adds
 * would make the drive too fast without it.
 */
static int64_t quiet_median(struct prober *prober, unsigned ios)
{
	int64_t lowest = INT64_MAX;

	for (unsigned first = 0; first + CHUNK_IOS <= ios; first += CHUNK_IOS) {
		int64_t *chunk = prober->took_ns + first;

		sort_times(chunk, CHUNK_IOS);
		if (chunk[CHUNK_IOS / 2] < lowest)
			lowest = chunk[CHUNK_IOS / 2];
	}
	return lowest;
}

/* Each page, because the kernel may split a write. */
static void mark_buffers(struct prober *prober)
{
	for (size_t at = 0; at < (size_t)MAX_DEPTH * LARGE_BYTES; at += SMALL_BYTES)
		memcpy(prober->buffers + at, prober->target->mark, CALIBRATION_MARK_BYTES);
}

/* Overhead of small and large I/Os; the lowest of all probes. */
struct probed {
	int64_t small_ns, large_ns;
};

/* Of I/Os that are to take asked_ns. */
static int probe_overhead(struct prober *prober, enum io_kind kind, int64_t length_bytes, unsigned ios, int64_t asked_ns,
			  int64_t *lowest_ns)
{
	int64_t overhead_ns;
	int err;

	delay_set_constant(prober->target->delay, asked_ns);
	err = probe_latency(prober, kind, length_bytes, ios);
	if (err)
		return err;
	overhead_ns = quiet_median(prober, ios) - asked_ns;
	if (overhead_ns < *lowest_ns)
		*lowest_ns = overhead_ns;
	return 0;
}

static struct overhead overhead_of(const struct prober *prober, const struct probed *probed)
{
	int64_t more_bytes = fit(prober, LARGE_BYTES) - SMALL_BYTES, more_ns = probed->large_ns - probed->small_ns;
	struct overhead overhead = { .io_ns = probed->small_ns };

	if (more_ns > 0 && more_bytes > 0) {
		overhead.ns_per_byte = (double)more_ns / (double)more_bytes;
		overhead.io_ns -= (int64_t)(overhead.ns_per_byte * SMALL_BYTES);
	}
	if (overhead.io_ns < 0)
		overhead.io_ns = 0;
	return overhead;
}

static int probe_overheads(struct prober *prober, struct probed lowest[KIND_COUNT])
{
	int64_t large_bytes = fit(prober, LARGE_BYTES);
	int err = 0;

	mark_buffers(prober); /* a throughput of reads replaced them */
	for (unsigned kind = 0; kind < KIND_COUNT && !err; kind++) {
		struct probed *own = &lowest[kind];

		err = probe_overhead(prober, kind, SMALL_BYTES, SMALL_IOS, CHECK_ASKED_NS, &own->small_ns);
		if (kind == KIND_BLOCKING)
			own->large_ns = own->small_ns; /* it has no length */
		else if (!err)
			err = probe_overhead(prober, kind, large_bytes, LARGE_IOS, LARGE_ASKED_NS, &own->large_ns);
	}
	return err;
}

static void prepare_io(struct prober *prober, struct io_uring *ring, bool writes, int64_t length_bytes, unsigned buffer)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	char *data = prober->buffers + (size_t)buffer * LARGE_BYTES;

	if (writes)
		io_uring_prep_write(sqe, prober->target->fd, data, (unsigned)length_bytes, any_offset(prober, length_bytes));
	else
		io_uring_prep_read(sqe, prober->target->fd, data, (unsigned)length_bytes, any_offset(prober, length_bytes));
	io_uring_sqe_set_data64(sqe, buffer);
}

static int run_ring(struct prober *prober, struct io_uring *ring, bool writes, int64_t length_bytes, unsigned depth,
		    double *ios_per_s)
{
	int64_t begin_ns = monotonic_ns(), now_ns = begin_ns;
	unsigned in_flight = depth;
	uint64_t done = 0;

	for (unsigned i = 0; i < depth; i++)
		prepare_io(prober, ring, writes, length_bytes, i);
	while (in_flight) {
		struct io_uring_cqe *cqe;
		int err = io_uring_submit_and_wait(ring, 1);

		if (err < 0 && err != -EINTR)
			return err;
		while (!io_uring_peek_cqe(ring, &cqe)) {
			unsigned buffer = (unsigned)io_uring_cqe_get_data64(cqe);
			int result = cqe->res;

			io_uring_cqe_seen(ring, cqe);
			if (result != length_bytes)
				return result < 0 ? result : -EIO;
			done++;
			now_ns = monotonic_ns();
			if (now_ns - begin_ns < THROUGHPUT_NS)
				prepare_io(prober, ring, writes, length_bytes, buffer);
			else
				in_flight--;
		}
	}
	*ios_per_s = (double)done * 1e9 / (double)(now_ns - begin_ns);
	return 0;
}

/* As many I/Os as possible, each completed at once. */
static int probe_throughput(struct prober *prober, bool writes, int64_t length_bytes, unsigned depth, double *ios_per_s)
{
	struct io_uring ring;
	int err = io_uring_queue_init(MAX_DEPTH, &ring, 0);

	if (err)
		return err;
	mark_buffers(prober);
	delay_set_constant(prober->target->delay, 0);
	err = run_ring(prober, &ring, writes, length_bytes, depth, ios_per_s);
	io_uring_queue_exit(&ring);
	return err;
}

static int prober_init(struct prober *prober, const struct calibration_target *target)
{
	*prober = (struct prober){ .target = target, .random = (uint64_t)monotonic_ns() };
	prober->buffers = mmap(NULL, (size_t)MAX_DEPTH * LARGE_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (prober->buffers == MAP_FAILED)
		return -ENOMEM;
	mark_buffers(prober);
	return 0;
}

static void prober_deinit(struct prober *prober)
{
	delay_set_constant(prober->target->delay, DELAY_NONE);
	munmap(prober->buffers, (size_t)MAX_DEPTH * LARGE_BYTES);
}

static int check_all(struct prober *prober, struct reached reached[KIND_COUNT])
{
	int err = 0;

	delay_set_constant(prober->target->delay, CHECK_ASKED_NS);
	for (unsigned kind = 0; kind < KIND_COUNT && !err; kind++) {
		err = probe_latency(prober, kind, SMALL_BYTES, CHECK_IOS);
		sort_times(prober->took_ns, CHECK_IOS);
		reached[kind] = (struct reached){ prober->took_ns[CHECK_IOS / 2], prober->took_ns[CHECK_IOS * 99 / 100] };
	}
	return err;
}

static int probe_all(struct prober *prober, struct calibration *calibration)
{
	const struct overhead none[KIND_COUNT] = { 0 };
	struct probed lowest[KIND_COUNT];
	struct delay *delay = prober->target->delay;
	int64_t large_bytes = fit(prober, LARGE_BYTES);
	int err;

	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		lowest[kind] = (struct probed){ INT64_MAX, INT64_MAX };
	delay_set_overheads(delay, none);
	err = probe_overheads(prober, lowest);
	if (!err)
		err = probe_throughput(prober, false, SMALL_BYTES, MAX_DEPTH, &calibration->read_iops);
	if (!err)
		err = probe_throughput(prober, false, large_bytes, 8, &calibration->read_bandwidth);
	/* Between the other measurements, so that a busy moment of the machine does not affect all probes. */
	if (!err)
		err = probe_overheads(prober, lowest);
	if (!err)
		err = probe_throughput(prober, true, SMALL_BYTES, MAX_DEPTH, &calibration->write_iops);
	if (!err)
		err = probe_throughput(prober, true, large_bytes, 8, &calibration->write_bandwidth);
	if (!err)
		err = probe_overheads(prober, lowest);
	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		calibration->overheads[kind] = overhead_of(prober, &lowest[kind]);
	calibration->read_bandwidth *= (double)large_bytes;
	calibration->write_bandwidth *= (double)large_bytes;
	delay_set_overheads(delay, calibration->overheads);
	if (!err)
		err = check_all(prober, calibration->check);
	delay_get_return(delay, calibration->return_ns);
	return err;
}

int calibrate(const struct calibration_target *target, bool only_check, struct calibration *calibration)
{
	struct prober prober;
	int err = prober_init(&prober, target);

	*calibration = (struct calibration){ 0 };
	if (err)
		return err;
	err = only_check ? check_all(&prober, calibration->check) : probe_all(&prober, calibration);
	prober_deinit(&prober);
	return err;
}
