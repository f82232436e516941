/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

bool report_shortage(const char *what, int err)
{
	const char *remedy = err == EMFILE ? "raise the limit: ulimit -n 4096" :
			     err == ENFILE ? "raise the limit: sysctl fs.file-max" :
			     err == EAGAIN ? "raise the limit of threads: ulimit -u, or pids.max of the control group" :
			     err == ENOMEM ? "end other programs; what is free: free -h" : NULL;

	if (remedy)
		report_error(remedy, "%s: %s", what, strerror(err));
	return remedy;
}
