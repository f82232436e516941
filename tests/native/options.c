/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Options of the helpers: what they set, and which arguments are refused. */
#include "options.h"

#include <assert.h>
#include <getopt.h>
#include <string.h>

static int parse(const struct option_entry *entries, int argc, const char **argv)
{
	optind = 0; /* starts getopt again */
	return parse_options(argc, (char **)argv, entries, "usage\n");
}

static int refuse(void *context, const char *argument)
{
	*(const char **)context = argument;
	return strcmp(argument, "bad") ? 1 : 2;
}

int main(void)
{
	bool set = false;
	int32_t small = -7, beside = -7;
	int64_t large = 0;
	const char *text = NULL, *seen = NULL;
	const struct option_entry entries[] = {
		FLAG_OPTION("set", set), NUMBER_OPTION("small", small, 0, INT32_MAX),
		NUMBER_OPTION("large", large, 1, INT64_MAX), TEXT_OPTION("text", text), CALL_OPTION("call", refuse, &seen),
		{ 0 },
	};
	const char *all[] = { "helper", "--set", "--small=5", "--large", "9223372036854775807", "--text=x", "end" };
	const char *const refused[] = { "--small=-1", "--small=2147483648", "--small=", "--small=5x", "--large=0",
					"--large=9223372036854775808", "--set=1", "--none", "--call=bad" };

	assert(!parse(entries, 7, all) && optind == 6);
	assert(set && small == 5 && beside == -7 && large == INT64_MAX && !strcmp(text, "x"));
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		const char *words[] = { "helper", refused[i] };

		assert(parse(entries, 2, words) == 2);
	}
	assert(!strcmp(seen, "bad") && small == 5);
	assert(parse(entries, 2, (const char *[]){ "helper", "--call=reported" }) == 1);
	return 0;
}
