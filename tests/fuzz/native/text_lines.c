/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Fields and numbers of text lines. Input: a byte, 0 for fields between blanks or the separator, and the text. */
#include "fuzz.h"
#include <ctype.h>
#include <errno.h>
#include "cleanup.h"
#include "text_lines.h"

#define PLACES 9

static void *allocated(size_t count, size_t size)
{
	void *found = malloc(count * size);

	REQUIRE(found || count * size == 0);
	return found;
}

static int has_only_digits(const uint8_t *text, int64_t start, int64_t end)
{
	int64_t at = start;

	while (at < end && isdigit(text[at]))
		at++;
	return end > start && at == end;
}

/* Compares with strtoull(), and the readers with each other. */
static void use_numbers(const uint8_t *text, const int64_t *starts, const int64_t *ends, size_t rows)
{
	uint64_t *values CLEANUP_FREE = allocated(rows, sizeof(*values));
	uint64_t *others CLEANUP_FREE = allocated(rows, sizeof(*others));
	int64_t *decimals CLEANUP_FREE = allocated(rows, sizeof(*decimals));
	uint8_t *valid CLEANUP_FREE = allocated(rows, 1), *other_valid CLEANUP_FREE = allocated(rows, 1);

	text_lines_integers(text, starts, ends, rows, values, valid);
	text_lines_grouped_integers(text, starts, ends, rows, others, other_valid);
	for (size_t row = 0; row < rows; row++) {
		int64_t length = ends[row] - starts[row];
		char copy[32] = "";

		REQUIRE(valid[row] || !values[row]);
		if (!has_only_digits(text, starts[row], ends[row]) || length > 20) {
			REQUIRE(!valid[row]);
			continue;
		}
		memcpy(copy, text + starts[row], (size_t)length);
		errno = 0;
		REQUIRE(strtoull(copy, NULL, 10) == (valid[row] ? values[row] : UINT64_MAX));
		REQUIRE(valid[row] || errno == ERANGE);
		REQUIRE(length > 18 || (other_valid[row] && others[row] == values[row]));
	}
	for (int is_grouped = 0; is_grouped < 2; is_grouped++) {
		text_lines_decimals(text, starts, ends, rows, '.', PLACES, is_grouped, decimals, other_valid);
		for (size_t row = 0; row < rows; row++)
			REQUIRE(decimals[row] >= 0 && (other_valid[row] || !decimals[row]));
	}
	text_lines_hexadecimals(text, starts, ends, rows, others, other_valid);
	for (size_t row = 0; row < rows; row++)
		REQUIRE(!(valid[row] && other_valid[row]));
}

static void use_codes(const uint8_t *text, const int64_t *starts, const int64_t *ends, size_t rows)
{
	int32_t *codes CLEANUP_FREE = allocated(rows, sizeof(*codes));
	int64_t *first_rows CLEANUP_FREE = allocated(rows, sizeof(*first_rows));
	int64_t count = text_lines_codes(text, starts, ends, rows, 1, codes, first_rows), next = 0;

	REQUIRE(count >= 0 && count <= (int64_t)rows);
	for (size_t row = 0; row < rows; row++) {
		int64_t first;

		REQUIRE(codes[row] >= 0 && codes[row] <= next && codes[row] < count);
		first = first_rows[codes[row]];
		REQUIRE(codes[row] < next || first == (int64_t)row);
		next += codes[row] == next;
		REQUIRE(ends[first] - starts[first] == ends[row] - starts[row]);
		REQUIRE(!memcmp(text + starts[first], text + starts[row], (size_t)(ends[row] - starts[row])));
	}
	REQUIRE(next == count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int separator = size && data[0] ? data[0] : TEXT_LINES_BLANKS;
	size_t length = size ? size - 1 : 0, lines, capacity, fields;
	/* Without a byte behind the end, so that the sanitizer sees a read there. */
	uint8_t *text CLEANUP_FREE = allocated(length, 1);

	if (separator == '\n' || separator == '"')
		return 0;
	if (length)
		memcpy(text, data + 1, length);
	text_lines_count(text, 0, length, separator, &lines, &capacity);
	int64_t *starts CLEANUP_FREE = allocated(capacity, sizeof(*starts));
	int64_t *ends CLEANUP_FREE = allocated(capacity, sizeof(*ends));
	int64_t *of_lines CLEANUP_FREE = allocated(4 * lines, sizeof(*of_lines));
	struct text_lines split = { .starts = starts, .ends = ends };

	if (!lines)
		return 0;
	split.first = of_lines;
	split.count = of_lines + lines;
	split.begins = of_lines + 2 * lines;
	split.breaks = of_lines + 3 * lines;
	fields = text_lines_split(text, 0, length, separator, &split);
	REQUIRE(fields <= capacity);
	for (size_t line = 0; line < lines; line++) {
		REQUIRE(text[split.breaks[line]] == '\n');
		REQUIRE(split.begins[line] == (line ? split.breaks[line - 1] + 1 : 0));
		for (int64_t at = split.first[line]; at < split.first[line] + split.count[line]; at++)
			REQUIRE(starts[at] >= split.begins[line] && starts[at] <= ends[at] && ends[at] <= split.breaks[line]);
	}
	use_numbers(text, starts, ends, fields);
	use_codes(text, starts, ends, fields);
	for (int64_t index = -2; index < 3; index++) {
		int64_t *found CLEANUP_FREE = allocated(2 * lines, sizeof(*found));

		text_lines_field(&split, NULL, lines, NULL, index, found, found + lines);
		use_numbers(text, found, found + lines, lines);
	}
	return 0;
}
