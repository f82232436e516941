/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Giving up what only the loading of the programs needed. */
#ifndef BLKREEL_PRIVILEGE_H
#define BLKREEL_PRIVILEGE_H

/*
 * Drops all capabilities of this thread and of all that it starts, for good,
 * and where it is root's it becomes nobody's. Before 5.19 a kernel may refuse
 * the look at a map without CAP_BPF, which is then kept: a look at map_fd, whose
 * first value fits into `value`, tells. Returns 0 or a negative errno.
 */
int privilege_drop(int map_fd, void *value);

#endif
