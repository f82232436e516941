/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "failure.h"

#include <stdarg.h>
#include <stdio.h>

int fail(const char *remedy, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	if (remedy)
		fprintf(stderr, "; %s", remedy);
	fputc('\n', stderr);
	return -1;
}
