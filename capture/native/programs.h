/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The BPF programs, loaded in the best kind that this kernel takes, and attached. */
#ifndef BLKREEL_PROGRAMS_H
#define BLKREEL_PROGRAMS_H

#include "records.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_PROGRAMS 16

struct bpf_object;
struct bpf_link;

struct programs_options {
	const char *kind; /* "tp_btf", "raw_tp", or NULL for the best that works */
	bool without_io_start; /* as on a kernel before 6.5: for tests */
	bool files; /* inode and cgroup of each I/O, and paths */
	bool synthetic; /* loads the program that synthetic.h runs */
	bool own; /* marks the I/O of the processes told by programs_own_pid */
	bool own_only; /* and leaves out all other */
	const char *own_cgroup; /* or of those in this directory of the cgroup file system; NULL: by process */
	uint32_t ring_bytes; /* a power of two and whole pages */
	size_t slot_count;
	const struct device_config *devices;
	uint32_t device_count;
};

struct programs {
	const char *kind;
	bool has_io_start;
	struct bpf_object *object;
	struct bpf_link *links[MAX_PROGRAMS];
	size_t link_count;
	int ring_fd;
	int ledger_fd;
	int bios_fd; /* of drives without requests: what is in flight */
	int own_pids_fd;
	volatile struct capture_control *control;
	const volatile struct slot *slots;
	size_t slot_count;
};

/* Loads and attaches; nothing is recorded before control->phase says so. On failure prints the reason, returns -1. */
int programs_attach(struct programs *programs, const struct programs_options *options);
void programs_detach(struct programs *programs);
void programs_close(struct programs *programs);

/* This process, all its threads and all that it starts from now on are "own". Returns 0 or a negative errno. */
int programs_own_pid(const struct programs *programs, int32_t pid);

/* Times that a program was not run because it interrupted itself: each an event unseen. */
uint64_t programs_recursion_misses(const struct programs *programs);

/* libbpf's own words on stderr. */
void programs_be_verbose(void);

#endif
