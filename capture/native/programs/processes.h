/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Numbers of processes in another PID namespace than the initial one, whose numbers all events have. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct bpf_object;

/*
 * Replaces numbers of this namespace by those of the initial one, and by 0 if the process has ended. The program
 * list_processes is loaded. Returns 0 or a negative errno.
 */
int processes_translate(const struct bpf_object *object, int32_t *pids, size_t count);
