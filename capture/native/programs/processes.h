/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The processes of the workload, which all events have by their numbers in the initial PID namespace. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct bpf_object;

/*
 * Replaces numbers of this namespace by those of the initial one, and by 0 if the process has ended. The program
 * list_processes is loaded. Returns 0 or a negative errno.
 */
int processes_translate(const struct bpf_object *object, int32_t *pids, size_t count);

/*
 * Adds all descendants of the marked processes. The program mark_children is loaded, and process_fork attached, so that
 * those that start meanwhile are marked too. Returns 0 or a negative errno.
 */
int processes_mark_descendants(const struct bpf_object *object);
