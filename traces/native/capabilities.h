/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Dropping privileges for good. Sets of capabilities have the bits of linux/capability.h. */
#pragma once

#include <stdint.h>

/*
 * Leaves this thread, and those that it starts, only these of its capabilities, and none to a program that it
 * executes. Returns 0 or a negative errno.
 */
int capabilities_limit(uint64_t allowed);

/*
 * Like capabilities_limit(); root also becomes nobody, and no_new_privs is set. Call it before there are other threads,
 * which would stay as they are.
 */
int capabilities_leave_root(uint64_t allowed);
