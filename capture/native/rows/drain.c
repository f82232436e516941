/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "drain.h"
#include "clock.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define POLL_EVERY_MS 10
#define POST_EVERY_NS 100000000ull

static void post_rows(struct drain *drain)
{
	drain->posted_ns = monotonic_ns();
	drain->block->posted_ns = row_posted_ns(drain->posted_ns, drain->epoch_ns);
	outbox_post_rows(drain->outbox, drain->block);
	drain->block = outbox_take(drain->outbox);
}

static void post_full(struct drain *drain)
{
	if (drain->block->rows == ROWS_PER_BLOCK)
		post_rows(drain);
}

static bool is_before_start(const struct drain *drain, uint64_t submit_ns)
{
	return !drain->epoch_ns || submit_ns < drain->epoch_ns;
}

void drain_add(struct drain *drain, const struct io_record *record, const struct io_file_record *file)
{
	if (is_before_start(drain, record->submit_ns)) {
		drain->before_start++;
		return;
	}
	row_append(drain->block, record, file, drain->epoch_ns);
	atomic_fetch_add_explicit(&drain->rows, 1, memory_order_relaxed);
	if (record->complete_ns && record->complete_ns <= atomic_load_explicit(&drain->stopped_ns, memory_order_relaxed) &&
	    record->device >= 0 && record->device < MAX_DEVICES && record->op < OP_OTHER &&
	    !(record->flags & FLAG_PASSTHROUGH)) /* the kernel does not count it */
		drain->recorded[record->device].by_op[record->op]++;
	post_full(drain);
}

static void add_use(struct drain *drain, const struct use_record *use)
{
	if (is_before_start(drain, use->submit_ns))
		return;
	row_append_use(drain->block, use, drain->epoch_ns);
	post_full(drain);
}

static void add_wake(struct drain *drain, const struct wake_record *wake)
{
	if (is_before_start(drain, wake->at_ns))
		return;
	row_append_wake(drain->block, wake, drain->epoch_ns);
	post_full(drain);
}

void drain_flush(struct drain *drain)
{
	names_wake(drain->names);
	if (drain->block->rows || drain->outbox->live)
		post_rows(drain);
	else
		drain->posted_ns = monotonic_ns();
}

static int on_record(void *context, void *data, size_t size)
{
	struct drain *drain = context;

	if (*(uint8_t *)data == RECORD_IO && size >= sizeof(struct io_record))
		drain_add(drain, data, size >= sizeof(struct io_file_record) ? data : NULL);
	else if (*(uint8_t *)data == RECORD_USE && size >= sizeof(struct use_record))
		add_use(drain, data);
	else if (*(uint8_t *)data == RECORD_WAKE && size >= sizeof(struct wake_record))
		add_wake(drain, data);
	else if (*(uint8_t *)data == RECORD_THREAD && size >= sizeof(struct thread_record))
		names_add_thread(drain->names, data);
	else if (*(uint8_t *)data == RECORD_FILE && size >= sizeof(struct file_record))
		names_add_file(drain->names, data);
	return 0;
}

static void *empty_ring(void *argument)
{
	struct drain *drain = argument;
	uint64_t stop = 0;

	while (!stop) {
		struct epoll_event event;

		/* Edge-triggered: a ring that is never empty must not turn this into a busy loop. */
		epoll_wait(drain->epoll_fd, &event, 1, POLL_EVERY_MS);
		if (read(drain->stop_fd, &stop, sizeof(stop)) < 0)
			stop = 0;
		ring_buffer__consume(drain->ring);
		if (monotonic_ns() - drain->posted_ns >= POST_EVERY_NS)
			drain_flush(drain);
	}
	return NULL;
}

static int watch(int epoll_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.fd = fd };

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int start(struct drain *drain, int ring_fd)
{
	int err;

	drain->ring = ring_buffer__new(ring_fd, on_record, drain, NULL);
	if (!drain->ring || drain->epoll_fd < 0 || drain->stop_fd < 0)
		return -errno;
	err = watch(drain->epoll_fd, ring_fd);
	if (!err)
		err = watch(drain->epoll_fd, drain->stop_fd);
	if (err)
		return err;
	drain->block = outbox_take(drain->outbox);
	err = pthread_create(&drain->thread, NULL, empty_ring, drain);
	drain->running = !err;
	return -err;
}

int drain_init(struct drain *drain, struct outbox *outbox, struct names *names, int ring_fd)
{
	int err;

	*drain = (struct drain){ .outbox = outbox, .names = names };
	atomic_store(&drain->stopped_ns, UINT64_MAX);
	drain->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	drain->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = start(drain, ring_fd);
	if (err)
		drain_deinit(drain);
	return err;
}

void drain_stop(struct drain *drain)
{
	if (!drain->running)
		return;
	eventfd_write(drain->stop_fd, 1);
	pthread_join(drain->thread, NULL);
	drain->running = false;
}

void drain_deinit(struct drain *drain)
{
	if (!drain->outbox)
		return; /* not initialized */
	drain_stop(drain);
	if (drain->block)
		outbox_post_rows(drain->outbox, drain->block);
	ring_buffer__free(drain->ring);
	if (drain->epoll_fd >= 0)
		close(drain->epoll_fd);
	if (drain->stop_fd >= 0)
		close(drain->stop_fd);
	drain->outbox = NULL;
}
