/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

int report_error(const char *remedy, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	if (remedy)
		fprintf(stderr, "; %s", remedy);
	fputc('\n', stderr);
	return -1;
}
