/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "symbols.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define AMBIGUOUS UINT64_MAX

void find_symbols(const struct symbol *symbols)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	char line[512], name[256];
	uint64_t address;

	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%" SCNx64 " %*c %255s", &address, name) != 2)
			continue;
		for (const struct symbol *symbol = symbols; symbol->name; symbol++)
			if (!strcmp(symbol->name, name))
				*symbol->address = *symbol->address ? AMBIGUOUS : address;
	}
	fclose(file);
	/* Static functions of one name can't be told apart: better none than the wrong one. */
	for (const struct symbol *symbol = symbols; symbol->name; symbol++)
		if (*symbol->address == AMBIGUOUS)
			*symbol->address = 0;
}
