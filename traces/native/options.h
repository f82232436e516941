/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Command-line options of a helper, as a table. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_OPTIONS 32

enum option_kind { OPTION_SET, OPTION_NUMBER, OPTION_TEXT, OPTION_CALL };

/* Use the macros below. A table ends with { 0 }. */
struct option_entry {
	const char *name;
	enum option_kind kind;
	void *value;
	size_t width_bytes;
	int64_t least, most;
	/* Returns 0, 1 after an error message, or 2 for an invalid argument. */
	int (*call)(void *context, const char *argument);
};

#define FLAG_OPTION(name, field) { name, OPTION_SET, &(field) }  /* a bool: true */
#define TEXT_OPTION(name, field) { name, OPTION_TEXT, &(field) } /* a const char * */
#define NUMBER_OPTION(name, field, least, most) { name, OPTION_NUMBER, &(field), sizeof(field), least, most }
#define CALL_OPTION(name, function, context) { name, OPTION_CALL, context, .call = function }

/* Returns 0 with `optind` at the first operand, or an exit code after an error message. */
int parse_options(int argc, char **argv, const struct option_entry *entries, const char *usage);

/* Whether the text is a decimal number from `least` to `most`. */
bool parse_number(const char *text, int64_t least, int64_t most, int64_t *number);
