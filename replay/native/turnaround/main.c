/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * blkreel-turnaround: the times from the end of an I/O of a drive to the issue of its next one, while one thread reads
 * it with one I/O in flight. It prints `ready`, and at the end of its standard input the number of the times, and their
 * first decile in ns: other work on the machine makes some of them longer.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/libbpf.h>

#include "error.h"
#include "run/exit_code.h"
#include "turnaround.skel.h"

static int by_time(const void *one, const void *other)
{
	uint64_t a, b;

	memcpy(&a, one, sizeof(a));
	memcpy(&b, other, sizeof(b));
	return (a > b) - (a < b);
}

static void wait_for_end(void)
{
	char byte;
	ssize_t length;

	do
		length = read(STDIN_FILENO, &byte, 1);
	while (length > 0 || (length < 0 && errno == EINTR));
}

static int measure(struct turnaround_bpf *programs, uint32_t device)
{
	uint32_t count;

	programs->bss->device = device;
	if (turnaround_bpf__attach(programs))
		return EXIT_FAILED;
	puts("ready");
	fflush(stdout);
	wait_for_end();
	turnaround_bpf__detach(programs);
	count = programs->bss->count;
	qsort(programs->bss->gaps_ns, count, sizeof(*programs->bss->gaps_ns), by_time);
	printf("%" PRIu32 " %" PRIu64 "\n", count, count ? (uint64_t)programs->bss->gaps_ns[count / 10] : 0);
	return fflush(stdout) ? EXIT_FAILED : 0;
}

int main(int argc, char **argv)
{
	struct turnaround_bpf *programs;
	unsigned major, minor;
	int end = 0, exit_code;

	if (argc != 2 || sscanf(argv[1], "%u:%u%n", &major, &minor, &end) != 2 || argv[1][end]) {
		fputs("usage: blkreel-turnaround MAJOR:MINOR\n", stderr);
		return EXIT_WRONG_USAGE;
	}
	libbpf_set_print(NULL); /* a kernel without it is no error */
	programs = turnaround_bpf__open_and_load();
	if (!programs)
		return EXIT_FAILED;
	exit_code = measure(programs, (uint32_t)major << 20 | minor);
	turnaround_bpf__destroy(programs);
	return exit_code;
}
