/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the helper says when it can't go on: one line on stderr, "problem; remedy". */
#ifndef BLKREEL_MESSAGE_H
#define BLKREEL_MESSAGE_H

#include <stdarg.h>
#include <stdio.h>

/* What the process ends with; replay/engine.py turns them into its errors. */
enum exit_code {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_WRONG_USAGE = 2,
	EXIT_REFUSED = 5,
};

__attribute__((format(printf, 1, 2))) static inline void complain(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
}

#endif
