/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the kernel side knows by number and a reader by name: cgroups and mounted file systems. */
#ifndef BLKREEL_NAMES_H
#define BLKREEL_NAMES_H

#include <stdint.h>

/* Path of a cgroup below the root of the unified hierarchy, "/" for the root; "" where it can't be found (any more). */
const char *name_of_cgroup(uint64_t id);

/* Where the root of a file system is mounted, without a slash at its end; NULL where it is not. */
const char *mount_of(uint32_t major, uint32_t minor);

#endif
