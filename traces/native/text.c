/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "text.h"

#include "codes.h"

#include <errno.h>
#include <inttypes.h>

int text_init(struct text *text)
{
	*text = (struct text){ 0 };
	text->file = open_memstream(&text->bytes, &text->length);
	return text->file ? 0 : -ENOMEM;
}

void text_deinit(struct text *text)
{
	if (text->file)
		fclose(text->file);
	free(text->bytes);
	*text = (struct text){ 0 };
}

char *text_finish(struct text *text)
{
	FILE *file = text->file;
	int failed = ferror(file);
	char *bytes;

	text->file = NULL;
	failed |= fclose(file);
	if (failed)
		return NULL;
	bytes = text->bytes;
	text->bytes = NULL;
	return bytes;
}

void print_json_part(FILE *file, const char *part, size_t max_bytes)
{
	for (size_t i = 0; i < max_bytes && part[i]; i++) {
		unsigned char byte = (unsigned char)part[i];

		if (byte < 0x20 || byte >= 0x7f || byte == '"' || byte == '\\')
			fprintf(file, "\\u%04x", byte);
		else
			fputc(byte, file);
	}
}

void print_json_string(FILE *file, const char *string, size_t max_bytes)
{
	fputc('"', file);
	print_json_part(file, string, max_bytes);
	fputc('"', file);
}

void print_json_numbers(FILE *file, const uint64_t *numbers, size_t count)
{
	fputc('[', file);
	for (size_t i = 0; i < count; i++)
		fprintf(file, "%s%" PRIu64, i ? ", " : "", numbers[i]);
	fputc(']', file);
}

void print_json_counted(FILE *file, const uint64_t *by_op)
{
	uint64_t writes = by_op[OP_WRITE_ZEROES];

	for (int op = 0; op < OP_COUNT; op++)
		if (op_is_write(op) || op_is_zone_management(op))
			writes += by_op[op];
	fprintf(file, "{\"read\": %" PRIu64 ", \"write\": %" PRIu64 ", \"discard\": %" PRIu64 ", \"flush\": %" PRIu64 "}",
		by_op[OP_READ], writes, by_op[OP_DISCARD], by_op[OP_FLUSH]);
}
