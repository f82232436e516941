/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "drain.h"
#include "json_text.h"
#include "names.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY_MS 10
#define HAND_OVER_EVERY_NS 100000000ull

uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void flush_threads(struct drain *drain)
{
	char *json = NULL;
	size_t length;
	FILE *file;

	if (!drain->thread_count)
		return;
	file = open_memstream(&json, &length);
	fputs("{\"note\": \"threads\", \"threads\": [", file);
	for (size_t i = 0; i < drain->thread_count; i++) {
		const struct thread_record *thread = &drain->threads[i];

		fprintf(file, "%s[%d, %d, \"", i ? ", " : "", thread->tid, thread->pid);
		print_json_text(file, thread->comm, sizeof(thread->comm));
		fputs("\", \"", file);
		print_json_text(file, thread->process, sizeof(thread->process));
		fputs("\", \"", file);
		print_json_text(file, name_of_cgroup(thread->cgroup), PATH_MAX);
		fputs("\"]", file);
	}
	fputs("]}", file);
	fclose(file);
	outbox_post_json(drain->outbox, BLOCK_NOTE, json);
	drain->thread_count = 0;
}

/* From the root of its file system to the file: the kernel's side begins at the file. */
static void print_path(FILE *file, const struct file_record *record)
{
	const char *mount = mount_of(record->filesystem >> 20, record->filesystem & 0xfffff);
	const char *parts[MAX_PATH_PARTS];
	const char *at = record->names, *end = record->names + MAX_PATH_BYTES;
	int count = 0;

	while (count < record->parts && count < MAX_PATH_PARTS && at < end) {
		parts[count++] = at;
		at += strnlen(at, end - at) + 1;
	}
	if (mount)
		print_json_text(file, mount, PATH_MAX);
	for (int i = count - 1; i >= 0; i--) {
		fputc('/', file);
		print_json_text(file, parts[i], end - parts[i]);
	}
}

static void flush_files(struct drain *drain)
{
	char *json = NULL;
	size_t length;
	FILE *file;

	if (!drain->file_count)
		return;
	file = open_memstream(&json, &length);
	fputs("{\"note\": \"files\", \"files\": [", file);
	for (size_t i = 0; i < drain->file_count; i++) {
		const struct file_record *record = &drain->files[i];

		fprintf(file, "%s{\"filesystem\": \"%u:%u\", \"inode\": %" PRIu64 ", \"path\": \"", i ? ", " : "",
			record->filesystem >> 20, record->filesystem & 0xfffff, (uint64_t)record->inode);
		print_path(file, record);
		fputs("\"}", file);
	}
	fputs("]}", file);
	fclose(file);
	outbox_post_json(drain->outbox, BLOCK_NOTE, json);
	drain->file_count = 0;
}

static void add_file(struct drain *drain, const struct file_record *record)
{
	if (drain->file_count == FILES_PER_NOTE)
		flush_files(drain);
	drain->files[drain->file_count++] = *record;
}

static void add_thread(struct drain *drain, const struct thread_record *record)
{
	/* Two threads that share an entry of the kernel's cache are told at every I/O. */
	for (size_t i = 0; i < drain->thread_count; i++)
		if (!memcmp(&drain->threads[i], record, sizeof(*record)))
			return;
	if (drain->thread_count == THREADS_PER_NOTE)
		flush_threads(drain);
	drain->threads[drain->thread_count++] = *record;
}

static void hand_over(struct drain *drain)
{
	drain->handed_over_ns = monotonic_ns();
	drain->block->posted_ns = drain->handed_over_ns - drain->epoch_ns;
	outbox_post_rows(drain->outbox, drain->block);
	drain->block = outbox_take(drain->outbox);
}

void drain_add(struct drain *drain, const struct io_record *record, const struct io_file_record *file)
{
	row_append(drain->block, record, file, drain->epoch_ns);
	atomic_fetch_add_explicit(&drain->rows, 1, memory_order_relaxed);
	if (record->complete_ns && record->complete_ns <= atomic_load_explicit(&drain->stopped_ns, memory_order_relaxed) &&
	    record->device >= 0 && record->device < MAX_DEVICES && record->op < OP_OTHER)
		drain->seen[record->device].by_op[record->op]++;
	if (drain->block->rows == ROWS_PER_BLOCK)
		hand_over(drain);
}

void drain_flush(struct drain *drain)
{
	flush_threads(drain);
	flush_files(drain);
	if (drain->block->rows || drain->outbox->live)
		hand_over(drain);
	else
		drain->handed_over_ns = monotonic_ns();
}

static int on_record(void *context, void *data, size_t size)
{
	struct drain *drain = context;

	if (*(uint8_t *)data == RECORD_IO && size >= sizeof(struct io_record))
		drain_add(drain, data, size >= sizeof(struct io_file_record) ? data : NULL);
	else if (*(uint8_t *)data == RECORD_THREAD && size >= sizeof(struct thread_record))
		add_thread(drain, data);
	else if (*(uint8_t *)data == RECORD_FILE && size >= sizeof(struct file_record))
		add_file(drain, data);
	return 0;
}

static void *empty_ring(void *argument)
{
	struct drain *drain = argument;
	uint64_t stop = 0;

	while (!stop) {
		struct epoll_event event;

		/* Edge-triggered: a ring that is never empty must not turn this into a busy loop. */
		epoll_wait(drain->epoll_fd, &event, 1, LOOK_EVERY_MS);
		if (read(drain->stop_fd, &stop, sizeof(stop)) < 0)
			stop = 0;
		ring_buffer__consume(drain->ring);
		if (monotonic_ns() - drain->handed_over_ns >= HAND_OVER_EVERY_NS)
			drain_flush(drain);
	}
	return NULL;
}

static int watch(int epoll_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.fd = fd };

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

int drain_start(struct drain *drain, struct outbox *outbox, int ring_fd, uint64_t epoch_ns)
{
	int err;

	memset(drain, 0, sizeof(*drain));
	drain->outbox = outbox;
	drain->epoch_ns = epoch_ns;
	atomic_store(&drain->stopped_ns, UINT64_MAX);
	drain->files = calloc(FILES_PER_NOTE, sizeof(*drain->files));
	if (!drain->files)
		return -ENOMEM;
	drain->ring = ring_buffer__new(ring_fd, on_record, drain, NULL);
	if (!drain->ring)
		return -errno;
	drain->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	drain->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (drain->epoll_fd < 0 || drain->stop_fd < 0)
		return -errno;
	err = watch(drain->epoll_fd, ring_fd);
	if (!err)
		err = watch(drain->epoll_fd, drain->stop_fd);
	if (err)
		return err;
	drain->block = outbox_take(outbox);
	return -pthread_create(&drain->thread, NULL, empty_ring, drain);
}

void drain_stop(struct drain *drain)
{
	uint64_t one = 1;

	if (write(drain->stop_fd, &one, sizeof(one)) < 0)
		abort(); /* an eventfd of our own takes a one */
	pthread_join(drain->thread, NULL);
	ring_buffer__free(drain->ring);
	close(drain->epoll_fd);
	close(drain->stop_fd);
}
