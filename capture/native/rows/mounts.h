/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where file systems are mounted, for the paths of their files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct mount {
	uint32_t device; /* of the file system: major << 20 | minor */
	char *root; /* the directory or file of it that is mounted, "" for all of it */
	char *point; /* "" for the root directory */
	size_t line; /* of mountinfo */
};

struct mounts {
	struct mount *all; /* by device, then in the order of their lines */
	size_t count;
};

/*
 * Reads the lines of /proc/self/mountinfo. A file system without a line keeps its last mounts, because files may be
 * named just after it was unmounted. Returns 0 or -ENOMEM, which leaves the mounts as they were.
 */
int mounts_read(struct mounts *mounts, FILE *mountinfo);
void mounts_deinit(struct mounts *mounts);

/*
 * The mount through which a path of a file system, from its root, is visible: of several the one with the longest root,
 * then the first. NULL: none.
 */
const struct mount *mounts_find(const struct mounts *mounts, uint32_t device, const char *path);

/* A line of mountinfo, split in place. type: of the file system, with what follows. Returns whether it is one. */
bool mount_parse(char *line, struct mount *mount, const char **type);
