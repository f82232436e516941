/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Names of threads and files in JSON. */
#ifndef BLKREEL_JSON_TEXT_H
#define BLKREEL_JSON_TEXT_H

#include <stddef.h>
#include <stdio.h>

/*
 * The text of a JSON string without its quotes. Bytes beyond ASCII come as code
 * points below 256: a name may be cut inside a character.
 */
static inline void print_json_text(FILE *file, const char *text, size_t max_bytes)
{
	for (size_t i = 0; i < max_bytes && text[i]; i++) {
		unsigned char byte = text[i];

		if (byte < 0x20 || byte >= 0x7f || byte == '"' || byte == '\\')
			fprintf(file, "\\u%04x", byte);
		else
			fputc(byte, file);
	}
}

#endif
