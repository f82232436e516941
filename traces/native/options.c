/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "options.h"
#include "error.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#define FIRST_CODE 256 /* no character, so that getopt's '?' is none of them */

bool parse_number(const char *text, int64_t least, int64_t most, int64_t *number)
{
	char *end;

	errno = 0;
	*number = strtoll(text, &end, 10);
	return !errno && end != text && !*end && *number >= least && *number <= most;
}

static int set_number(const struct option_entry *entry, const char *argument)
{
	int64_t number;

	if (!parse_number(argument, entry->least, entry->most, &number))
		return 2;
	if (entry->width_bytes == sizeof(int64_t))
		*(int64_t *)entry->value = number;
	else
		*(int32_t *)entry->value = (int32_t)number;
	return 0;
}

static int apply(const struct option_entry *entry, const char *argument)
{
	switch (entry->kind) {
	case OPTION_SET:
		*(bool *)entry->value = true;
		return 0;
	case OPTION_TEXT:
		*(const char **)entry->value = argument;
		return 0;
	case OPTION_NUMBER:
		return set_number(entry, argument);
	default:
		return entry->call(entry->value, argument);
	}
}

int parse_options(int argc, char **argv, const struct option_entry *entries, const char *usage)
{
	struct option options[MAX_OPTIONS + 1] = { 0 };
	int option;

	for (int i = 0; entries[i].name; i++)
		options[i] = (struct option){
			.name = entries[i].name,
			.has_arg = entries[i].kind == OPTION_SET ? no_argument : required_argument,
			.val = FIRST_CODE + i,
		};
	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		const struct option_entry *entry = &entries[option - FIRST_CODE];
		int code;

		if (option < FIRST_CODE) {
			fputs(usage, stderr);
			return 2;
		}
		code = apply(entry, optarg);
		if (code == 2)
			report_error(NULL, "invalid argument of --%s: %s", entry->name, optarg);
		if (code)
			return code;
	}
	return 0;
}
