/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "processes.h"
#include "cleanup.h"
#include "records.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define PROCESSES_PER_READ 256

static void free_link(struct bpf_link **link)
{
	bpf_link__destroy(*link);
}

static void translate(const struct process_numbers *process, const int32_t *pids, int32_t *initial, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (pids[i] == process->own)
			initial[i] = process->initial;
}

int processes_translate(const struct bpf_object *object, int32_t *pids, size_t count)
{
	struct bpf_link *link CLEANUP(free_link) =
		bpf_program__attach_iter(bpf_object__find_program_by_name(object, "list_processes"), NULL);
	int fd CLEANUP_CLOSE = link ? bpf_iter_create(bpf_link__fd(link)) : -errno;
	int32_t *initial CLEANUP_FREE = calloc(count, sizeof(*initial));
	struct process_numbers processes[PROCESSES_PER_READ];
	ssize_t bytes;

	if (fd < 0)
		return fd;
	if (!initial)
		return -ENOMEM;
	do {
		bytes = read(fd, processes, sizeof(processes));
		if (bytes < 0 && errno != EAGAIN)
			return -errno;
		for (ssize_t i = 0; i < bytes / (ssize_t)sizeof(*processes); i++)
			translate(&processes[i], pids, initial, count);
	} while (bytes);
	memcpy(pids, initial, count * sizeof(*pids));
	return 0;
}

int processes_mark_descendants(const struct bpf_object *object)
{
	struct bpf_link *link CLEANUP(free_link) =
		bpf_program__attach_iter(bpf_object__find_program_by_name(object, "mark_children"), NULL);
	bool marked = true;

	if (!link)
		return -errno;
	while (marked) {
		int fd CLEANUP_CLOSE = bpf_iter_create(bpf_link__fd(link));
		int32_t children[PROCESSES_PER_READ];
		ssize_t bytes = 1;

		if (fd < 0)
			return fd;
		for (marked = false; bytes; marked |= bytes > 0) {
			bytes = read(fd, children, sizeof(children));
			if (bytes < 0 && errno != EAGAIN)
				return -errno;
		}
	}
	return 0;
}
