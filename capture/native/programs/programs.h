/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Loads the BPF programs, in the best kind that the kernel accepts, and attaches them. */
#pragma once

#include "records.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_PROGRAMS 24

struct bpf_object;
struct bpf_link;

struct programs_options {
	const char *kind; /* "tp_btf", "raw_tp", or NULL for the best that works */
	bool without_io_start; /* as on a kernel before 6.5: for tests */
	bool files; /* inode and cgroup of each I/O, and paths */
	bool synthetic; /* loads the program that synthetic.h runs */
	bool own; /* marks the I/O of the processes named by programs_own_pid() */
	bool own_only; /* records no other I/O */
	bool uses; /* the first use of pages of the page cache, where the kernel reports it */
	bool volumes; /* a bio that a volume submits has the thread of the bio for which it is */
	const char *own_cgroup; /* marks by this directory of the cgroup file system instead; NULL: by process */
	uint32_t ring_bytes; /* a power of two and whole pages */
	uint32_t slot_count;
	const struct capture_config *drives; /* the devices and paths of it */
};

struct programs {
	const char *kind;
	bool has_io_start;
	bool sees_uses;
	bool sees_limiter; /* a bio that waits for a limit of its cgroup has its issuer */
	struct bpf_object *object;
	struct bpf_link *links[MAX_PROGRAMS];
	size_t link_count;
	int ring_fd;
	int ledger_fd;
	int bios_fd; /* bios in flight, of drives without requests */
	int own_pids_fd;
	volatile struct capture_control *control;
	const volatile struct slot *slots;
	size_t slot_count;
};

/*
 * Loads and attaches; recording begins with control->phase. Returns 0, or -1 after printing the reason.
 */
int programs_attach(struct programs *programs, const struct programs_options *options);
void programs_detach(struct programs *programs);
/* Attaches again after programs_detach(). Returns 0 or a negative errno. */
int programs_link(struct programs *programs);
void programs_deinit(struct programs *programs);

/* Marks the I/O of this process and of all that it starts from now on. Returns 0 or a negative errno. */
int programs_own_pid(const struct programs *programs, int32_t pid);

/* How often a program did not run because it interrupted itself: each is a lost event. */
uint64_t programs_recursion_misses(const struct programs *programs);

/* Whether libbpf prints its messages on stderr. */
void programs_set_verbose(bool verbose);
