/* SPDX-License-Identifier: GPL-2.0-or-later */
/* An error as the user reads it: one line on stderr, "what is wrong; what mends it", which Python passes on. */
#ifndef BLKREEL_FAILURE_H
#define BLKREEL_FAILURE_H

/* Prints and returns -1, so that a caller can `return fail(...)`. remedy may be NULL. */
__attribute__((format(printf, 2, 3))) int fail(const char *remedy, const char *format, ...);

#endif
