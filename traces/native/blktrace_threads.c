/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "blktrace_threads.h"
#include "blktrace_report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TIDS (4u << 20) /* PID_MAX_LIMIT */

int threads_open(struct threads *threads, struct rows *rows, bool live)
{
	*threads = (struct threads){ .rows = rows, .live = live };
	threads->seen = calloc(MAX_TIDS / 8, 1);
	return threads->seen ? 0 : -ENOMEM;
}

void threads_close(struct threads *threads)
{
	free(threads->seen);
	threads->seen = NULL;
}

/* The whole of a small file, without its last newline; the length, or -1. */
static ssize_t read_small(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (fd < 0)
		return -1;
	length = read(fd, text, size - 1);
	close(fd);
	if (length < 0)
		return -1;
	text[length] = '\0';
	if (length && text[length - 1] == '\n')
		text[--length] = '\0';
	return length;
}

static void read_comm(int32_t pid, char comm[COMM_BYTES])
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	if (read_small(path, comm, COMM_BYTES) < 0)
		comm[0] = '\0';
}

/* False where the thread has ended already. */
static bool look_up(struct thread_name *name)
{
	char path[64], status[2048];
	const char *line;

	snprintf(path, sizeof(path), "/proc/%d/status", name->tid);
	if (read_small(path, status, sizeof(status)) < 0)
		return false;
	line = strstr(status, "\nTgid:");
	if (!line || sscanf(line, "\nTgid: %d", &name->pid) != 1)
		return false;
	if (!name->comm[0])
		read_comm(name->tid, name->comm);
	read_comm(name->pid, name->process);
	return name->comm[0] != '\0';
}

static int add(struct threads *threads, const struct thread_name *name)
{
	if (threads->waiting_count == THREADS_PER_NOTE) {
		int err = threads_flush(threads);

		if (err)
			return err;
	}
	threads->waiting[threads->waiting_count++] = *name;
	return 0;
}

int threads_note(struct threads *threads, uint32_t tid)
{
	struct thread_name name = { .tid = (int32_t)tid, .pid = -1 };

	if (!threads->live || tid >= MAX_TIDS || threads->seen[tid / 8] & (1u << tid % 8))
		return 0;
	threads->seen[tid / 8] |= 1u << tid % 8;
	if (!tid)
		return 0;
	if (look_up(&name))
		return add(threads, &name);
	if (threads->unnamed_count < MAX_UNNAMED)
		threads->unnamed[threads->unnamed_count++] = name.tid;
	return 0;
}

int threads_name(struct threads *threads, const struct blk_event *event)
{
	struct thread_name name = { .tid = (int32_t)event->pid, .pid = -1 };
	size_t length = event->payload_bytes < COMM_BYTES - 1 ? event->payload_bytes : COMM_BYTES - 1;

	if (!event->pid)
		return 0; /* the idle task: it completes, and causes nothing */
	memcpy(name.comm, event->payload, length);
	if (threads->live)
		look_up(&name);
	if (!name.process[0] && name.pid < 0)
		memcpy(name.process, name.comm, COMM_BYTES);
	return add(threads, &name);
}

int threads_flush(struct threads *threads)
{
	char *json = NULL;
	size_t length;
	FILE *file;
	int err;

	if (!threads->waiting_count)
		return 0;
	file = open_memstream(&json, &length);
	if (!file)
		return -ENOMEM;
	fputs("{\"note\": \"threads\", \"threads\": [", file);
	for (size_t i = 0; i < threads->waiting_count; i++) {
		const struct thread_name *name = &threads->waiting[i];

		fprintf(file, "%s[%d, %d, ", i ? ", " : "", name->tid, name->pid);
		report_text(file, name->comm, COMM_BYTES);
		fputs(", ", file);
		report_text(file, name->process, COMM_BYTES);
		fputs("]", file);
	}
	fputs("]}", file);
	fclose(file);
	err = rows_write_json(threads->rows, BLOCK_NOTE, json);
	free(json);
	threads->waiting_count = 0;
	return err;
}
