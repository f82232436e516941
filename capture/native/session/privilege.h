/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Dropping the privileges that only loading the programs needs. */
#pragma once

/*
 * Drops all capabilities of this thread, and of all that it starts, for good. Root becomes nobody. CAP_BPF is kept
 * on kernels before 5.19 that refuse to read a map without it, which a read of map_fd tries: its first value must fit
 * into `value`. Returns 0 or a negative errno.
 */
int privilege_drop(int map_fd, void *value);
