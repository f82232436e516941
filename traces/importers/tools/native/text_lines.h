/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Fields of text lines and the numbers in them, for a block of lines at once.
 *
 * A field is a pair of positions in the text, [start, end). Fields are delimited by blanks (bytes up to 0x20), or by one
 * separator; then they are without the blanks and the quotes around them, a separator between quotes is text, and a line
 * of blanks has no field. Arrays of results have an entry for each field asked for; an invalid number is 0.
 *
 * In C, because pyarrow's CSV reader cannot read such lines, and numpy took about 20 ns per byte.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define TEXT_LINES_BLANKS (-1)

/* first: index of the first field of each line. begins, breaks: positions of its first byte and of its line end. */
struct text_lines {
	int64_t *starts, *ends;
	int64_t *first, *count, *begins, *breaks;
};

/* How many lines text[begin, end) has, and at most how many fields. Bytes after the last line end are no line. */
void text_lines_count(const uint8_t *text, size_t begin, size_t end, int separator, size_t *lines, size_t *fields);

/* Fills the arrays, which have room for what text_lines_count() gave. Returns the number of fields. */
size_t text_lines_split(const uint8_t *text, size_t begin, size_t end, int separator, const struct text_lines *lines);

/* A field of each line, or of the lines `at`: the one with the number `index`, or indexes[row] for each row; a negative
 * number counts from the last field. 0 to 0 where a line lacks it.
 */
void text_lines_field(const struct text_lines *lines, const int64_t *at, size_t rows, const int64_t *indexes,
		      int64_t index, int64_t *starts, int64_t *ends);

/* 1 to 20 digits, below 2^64. */
void text_lines_integers(const uint8_t *text, const int64_t *starts, const int64_t *ends, size_t rows, uint64_t *values,
			 uint8_t *valid);

/* The same with or without separators of thousands, as in 16.384. */
void text_lines_grouped_integers(const uint8_t *text, const int64_t *starts, const int64_t *ends, size_t rows,
				 uint64_t *values, uint8_t *valid);

/* 0x and 1 to 16 digits. */
void text_lines_hexadecimals(const uint8_t *text, const int64_t *starts, const int64_t *ends, size_t rows,
			     uint64_t *values, uint8_t *valid);

/* An integer, or one with up to `places` (at most 18) digits behind a point, in units of 10^-places, below 2^62.
 * is_grouped: the integer may have separators of thousands, as in 1.079,9438 with the point ','.
 */
void text_lines_decimals(const uint8_t *text, const int64_t *starts, const int64_t *ends, size_t rows, uint8_t point,
			 int places, int is_grouped, int64_t *values, uint8_t *valid);

/* Numbers for distinct texts, in the order of their first appearance, and the first row of each. seed: unknown to the
 * text's author, so that no text makes this slow. Returns how many, -1 without memory.
 */
int64_t text_lines_codes(const uint8_t *text, const int64_t *starts, const int64_t *ends, size_t rows, uint64_t seed,
			 int32_t *codes, int64_t *first_rows);
