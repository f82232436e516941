/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Error messages of the helpers. */
#pragma once

#include <stdbool.h>

/*
 * Prints one line on stderr, "message; remedy", which Python shows to the user.
 * remedy may be NULL. Returns -1, so that a caller can `return report_error(...)`.
 */
__attribute__((format(printf, 2, 3))) int report_error(const char *remedy, const char *format, ...);

/* Prints such a line if err says that files, threads or memory ran out. Returns whether it does. what: "cannot ...". */
bool report_shortage(const char *what, int err);
