/* SPDX-License-Identifier: GPL-2.0-or-later */
/* JSON built in memory. */
#pragma once

#include "cleanup.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct text {
	FILE *file; /* to print to */
	char *bytes;
	size_t length;
};

/* A text that is released at the end of its scope: TEXT(name) = { 0 }; */
#define TEXT(name) struct text name CLEANUP(text_deinit)

/* Returns 0 or -ENOMEM. */
int text_init(struct text *text);
void text_deinit(struct text *text);

/* Ends the printing. Returns the text, which the caller frees; NULL if memory ran out. */
char *text_finish(struct text *text);

/*
 * Prints a JSON string of at most max_bytes, or up to a zero. Bytes beyond ASCII become code points below 256: a
 * name may be cut inside a character.
 */
void print_json_string(FILE *file, const char *string, size_t max_bytes);

/* The same without the quotes, for a string made of several parts. */
void print_json_part(FILE *file, const char *part, size_t max_bytes);

/* Prints [1, 2, 3]. */
void print_json_numbers(FILE *file, const uint64_t *numbers, size_t count);

/*
 * Prints I/Os by op of the trace (OP_COUNT numbers) as the counters of a drive in the kernel count them: write-zeroes and
 * zone operations are writes.
 */
void print_json_counted(FILE *file, const uint64_t *by_op);
