/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "threads.h"
#include "cleanup.h"
#include "pid_namespace.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TIDS (4u << 20) /* PID_MAX_LIMIT */

int threads_init(struct threads *threads, struct rows *rows, bool live)
{
	*threads = (struct threads){ .rows = rows, .live = live, .by_proc = live && pid_namespace_is_initial() };
	threads->seen = calloc(MAX_TIDS / 8, 1);
	return threads->seen ? 0 : -ENOMEM;
}

void threads_deinit(struct threads *threads)
{
	free(threads->seen);
	threads->seen = NULL;
}

/* Reads a small file without its last newline. Returns the length, or -1. */
static ssize_t read_small(const char *path, char *text, size_t size)
{
	int fd CLEANUP_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);

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

/* False if the thread has ended already. */
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
	threads->seen[tid / 8] |= (uint8_t)(1u << tid % 8);
	if (!tid)
		return 0;
	if (threads->by_proc && look_up(&name))
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
		return 0; /* the idle task causes no I/O */
	memcpy(name.comm, event->payload, length);
	if (threads->by_proc)
		look_up(&name);
	if (!name.process[0] && name.pid < 0)
		memcpy(name.process, name.comm, COMM_BYTES);
	return add(threads, &name);
}

int threads_flush(struct threads *threads)
{
	char *json CLEANUP_FREE = NULL;
	TEXT(text) = { 0 };

	if (!threads->waiting_count)
		return 0;
	if (text_init(&text))
		return -ENOMEM;
	fputs("{\"note\": \"threads\", \"threads\": [", text.file);
	for (size_t i = 0; i < threads->waiting_count; i++) {
		const struct thread_name *name = &threads->waiting[i];

		fprintf(text.file, "%s[%d, %d, ", i ? ", " : "", name->tid, name->pid);
		print_json_string(text.file, name->comm, COMM_BYTES);
		fputs(", ", text.file);
		print_json_string(text.file, name->process, COMM_BYTES);
		fputc(']', text.file);
	}
	fputs("]}", text.file);
	threads->waiting_count = 0;
	json = text_finish(&text);
	return json ? spool_file_write_json(&threads->rows->file, BLOCK_NOTE, json) : -ENOMEM;
}
