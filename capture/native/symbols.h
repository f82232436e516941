/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Addresses of functions in the running kernel. */
#ifndef BLKREEL_SYMBOLS_H
#define BLKREEL_SYMBOLS_H

#include <stdint.h>

struct symbol {
	const char *name; /* NULL ends a list */
	uint64_t *address;
};

/* Leaves an address at 0 where the name is unknown, hidden from us, or not unique. */
void find_symbols(const struct symbol *symbols);

#endif
