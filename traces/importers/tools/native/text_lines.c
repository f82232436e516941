/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "text_lines.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DIGITS 20
#define MOST_HEX_DIGITS 16
/* Digits of a number that has no separators of thousands where they are allowed. */
#define MOST_UNGROUPED_DIGITS 18
#define MOST_GROUPS 7
#define GROUP_DIGITS 3
#define INDIAN_GROUP_DIGITS 2
#define LIMIT_VALUE (1ull << 62)

__extension__ typedef unsigned __int128 uint128;

static bool is_blank(uint8_t byte)
{
	return byte <= ' ';
}

void text_lines_count(const uint8_t *text, size_t begin, size_t end, int separator, size_t *lines, size_t *fields)
{
	size_t breaks = 0, found = 0;
	bool was_blank = true;

	for (size_t i = begin; i < end; i++)
		breaks += text[i] == '\n';
	if (separator == TEXT_LINES_BLANKS) {
		for (size_t i = begin; i < end; i++) {
			bool blank = is_blank(text[i]);

			found += was_blank && !blank;
			was_blank = blank;
		}
	} else {
		for (size_t i = begin; i < end; i++)
			found += text[i] == separator;
		found += breaks;
	}
	*lines = breaks;
	*fields = found;
}

static size_t add_trimmed(const uint8_t *text, size_t start, size_t end, const struct text_lines *lines, size_t fields)
{
	for (int quotes = 0; quotes < 2; quotes++) {
		while (start < end && is_blank(text[start]))
			start++;
		while (end > start && is_blank(text[end - 1]))
			end--;
		if (quotes || end - start < 2 || text[start] != '"' || text[end - 1] != '"')
			break;
		start++;
		end--;
	}
	lines->starts[fields] = (int64_t)start;
	lines->ends[fields] = (int64_t)end;
	return fields + 1;
}

static size_t split_by_separator(const uint8_t *text, size_t begin, size_t end, uint8_t separator,
				 const struct text_lines *lines, size_t fields)
{
	size_t start = begin;
	bool in_quotes = false;

	while (begin < end && is_blank(text[begin]))
		begin++;
	if (begin == end)
		return fields;
	for (size_t i = start; i < end; i++) {
		if (text[i] == '"') {
			in_quotes = !in_quotes;
		} else if (text[i] == separator && !in_quotes) {
			fields = add_trimmed(text, start, i, lines, fields);
			start = i + 1;
		}
	}
	return add_trimmed(text, start, end, lines, fields);
}

static size_t split_by_blanks(const uint8_t *text, size_t begin, size_t end, const struct text_lines *lines,
			      size_t fields)
{
	for (size_t i = begin; i < end; i++) {
		if (is_blank(text[i]))
			continue;
		lines->starts[fields] = (int64_t)i;
		while (i < end && !is_blank(text[i]))
			i++;
		lines->ends[fields++] = (int64_t)i;
	}
	return fields;
}

size_t text_lines_split(const uint8_t *text, size_t begin, size_t end, int separator, const struct text_lines *lines)
{
	size_t fields = 0, line = 0;

	while (begin < end) {
		const uint8_t *found = memchr(text + begin, '\n', end - begin);
		size_t line_end, before = fields;

		if (!found)
			break;
		line_end = (size_t)(found - text);
		fields = separator == TEXT_LINES_BLANKS ? split_by_blanks(text, begin, line_end, lines, fields)
			: split_by_separator(text, begin, line_end, (uint8_t)separator, lines, fields);
		lines->first[line] = (int64_t)before;
		lines->count[line] = (int64_t)(fields - before);
		lines->begins[line] = (int64_t)begin;
		lines->breaks[line++] = (int64_t)line_end;
		begin = line_end + 1;
	}
	return fields;
}

void text_lines_field(const struct text_lines *lines, const int64_t *at, size_t rows, const int64_t *indexes,
		      int64_t index, int64_t *starts, int64_t *ends)
{
	for (size_t row = 0; row < rows; row++) {
		int64_t line = at ? at[row] : (int64_t)row, count = lines->count[line];
		int64_t place = indexes ? indexes[row] : index;
		bool has;

		place = place < 0 ? count + place : place;
		has = place >= 0 && place < count;
		starts[row] = has ? lines->starts[lines->first[line] + place] : 0;
		ends[row] = has ? lines->ends[lines->first[line] + place] : 0;
	}
}

static bool read_integer(const uint8_t *text, int64_t start, int64_t end, uint64_t *value)
{
	uint64_t number = 0;

	if (end <= start || end - start > MOST_DIGITS)
		return false;
	for (int64_t i = start; i < end; i++) {
		unsigned int digit = text[i] - (unsigned int)'0';

		if (digit > 9 || __builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, digit, &number))
			return false;
	}
	*value = number;
	return true;
}

static bool read_hexadecimal(const uint8_t *text, int64_t start, int64_t end, uint64_t *value)
{
	uint64_t number = 0;

	if (end - start < 3 || end - start > 2 + MOST_HEX_DIGITS || text[start] != '0' || text[start + 1] != 'x')
		return false;
	for (int64_t i = start + 2; i < end; i++) {
		unsigned int digit = text[i] - (unsigned int)'0', letter = (text[i] | 0x20u) - 'a';

		if (digit > 9 && letter > 5)
			return false;
		number = number << 4 | (digit <= 9 ? digit : letter + 10);
	}
	*value = number;
	return true;
}

static bool has_separator_at(const uint8_t *text, int64_t start, int64_t at)
{
	return at > start && memchr(".,' ", text[at], 4);
}

/*
 * From the last group on, since only the first one may have another number of digits. In Indian locales all but the
 * last have two, as in 12,34,567.
 */
static bool read_grouped_integer(const uint8_t *text, int64_t start, int64_t end, uint64_t *value)
{
	uint64_t number = 0, scale = 1, part;
	int digits = GROUP_DIGITS;

	for (int group = 0; group < MOST_GROUPS; group++) {
		int64_t at;
		bool has_separator;

		if (group == 1 && !has_separator_at(text, start, end - GROUP_DIGITS - 1))
			digits = INDIAN_GROUP_DIGITS;
		at = end - digits - 1;
		has_separator = has_separator_at(text, start, at);

		if (!has_separator && end - start > MOST_UNGROUPED_DIGITS)
			return false;
		if (!read_integer(text, has_separator ? at + 1 : start, end, &part) ||
		    __builtin_mul_overflow(part, scale, &part) || __builtin_add_overflow(number, part, &number))
			return false;
		if (!has_separator) {
			*value = number;
			return true;
		}
		end = at;
		scale *= digits == GROUP_DIGITS ? 1000 : 100;
	}
	return false;
}

static bool read_decimal(const uint8_t *text, int64_t start, int64_t end, uint8_t point, int places, bool is_grouped,
			 uint64_t unit, uint64_t *value)
{
	uint64_t whole, fraction = 0;
	int64_t whole_end = end;

	for (int behind = places; behind >= 0 && whole_end == end; behind--) {
		if (end - 1 - behind > start && text[end - 1 - behind] == point)
			whole_end = end - 1 - behind;
	}
	if (!(is_grouped ? read_grouped_integer : read_integer)(text, start, whole_end, &whole) ||
	    whole >= LIMIT_VALUE / unit)
		return false;
	if (whole_end + 1 < end && !read_integer(text, whole_end + 1, end, &fraction))
		return false;
	for (int64_t digits = end - whole_end - 1; whole_end < end && digits < places; digits++)
		fraction *= 10;
	*value = whole * unit + fraction;
	return true;
}

#define DEFINE_READ_FIELDS(name, read)                                                                              \
	void name(const uint8_t *text, const int64_t *starts, const int64_t *ends, size_t rows, uint64_t *values,       \
		  uint8_t *valid)                                                                                       \
	{                                                                                                              \
		for (size_t row = 0; row < rows; row++) {                                                              \
			values[row] = 0;                                                                               \
			valid[row] = read(text, starts[row], ends[row], &values[row]);                                 \
		}                                                                                                      \
	}

DEFINE_READ_FIELDS(text_lines_integers, read_integer)
DEFINE_READ_FIELDS(text_lines_grouped_integers, read_grouped_integer)
DEFINE_READ_FIELDS(text_lines_hexadecimals, read_hexadecimal)

void text_lines_decimals(const uint8_t *text, const int64_t *starts, const int64_t *ends, size_t rows, uint8_t point,
			 int places, int is_grouped, int64_t *values, uint8_t *valid)
{
	uint64_t unit = 1;

	for (int place = 0; place < places; place++)
		unit *= 10;
	for (size_t row = 0; row < rows; row++) {
		uint64_t value = 0;

		valid[row] = read_decimal(text, starts[row], ends[row], point, places, is_grouped, unit, &value);
		values[row] = (int64_t)value;
	}
}

/* Multiplies into 128 bits and folds them, as wyhash does. */
static uint64_t mixed(uint64_t a, uint64_t b)
{
	uint128 product = (uint128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(const uint8_t *text, size_t length, uint64_t seed)
{
	uint64_t hash = mixed(length ^ 0x9e3779b97f4a7c15ull, seed | 1), word;

	for (; length > sizeof(word); text += sizeof(word), length -= sizeof(word)) {
		memcpy(&word, text, sizeof(word));
		hash = mixed(hash ^ word, seed ^ 0xa0761d6478bd642full);
	}
	word = 0;
	memcpy(&word, text, length);
	return mixed(hash ^ word, seed ^ 0xe7037ed1a0b428dbull);
}

int64_t text_lines_codes(const uint8_t *text, const int64_t *starts, const int64_t *ends, size_t rows, uint64_t seed,
			 int32_t *codes, int64_t *first_rows)
{
	size_t slot_count = 64, distinct = 0;
	int32_t *slots = calloc(slot_count, sizeof(*slots)); /* code + 1, 0 for an empty slot */
	uint64_t *hashes = NULL;
	size_t capacity = 0;

	if (!slots)
		return -1;
	for (size_t row = 0; row < rows; row++) {
		const uint8_t *own = text + starts[row];
		size_t length = ends[row] > starts[row] ? (size_t)(ends[row] - starts[row]) : 0;
		uint64_t hash = hash_of(own, length, seed);
		size_t slot = hash & (slot_count - 1);

		for (; slots[slot]; slot = (slot + 1) & (slot_count - 1)) {
			int64_t other = first_rows[slots[slot] - 1];
			size_t other_length = ends[other] > starts[other] ? (size_t)(ends[other] - starts[other]) : 0;

			if (hashes[slots[slot] - 1] == hash && other_length == length &&
			    !memcmp(text + starts[other], own, length))
				break;
		}
		if (slots[slot]) {
			codes[row] = slots[slot] - 1;
			continue;
		}
		if (distinct == capacity) {
			uint64_t *grown = realloc(hashes, (capacity = capacity ? 2 * capacity : 32) * sizeof(*hashes));

			if (!grown)
				goto no_memory;
			hashes = grown;
		}
		hashes[distinct] = hash;
		first_rows[distinct] = (int64_t)row;
		codes[row] = (int32_t)distinct;
		slots[slot] = (int32_t)++distinct;
		if (distinct * 2 > slot_count) {
			int32_t *grown = calloc(slot_count *= 2, sizeof(*slots));

			if (!grown)
				goto no_memory;
			for (size_t code = 0; code < distinct; code++) {
				slot = hashes[code] & (slot_count - 1);
				while (grown[slot])
					slot = (slot + 1) & (slot_count - 1);
				grown[slot] = (int32_t)code + 1;
			}
			free(slots);
			slots = grown;
		}
	}
	free(hashes);
	free(slots);
	return (int64_t)distinct;
no_memory:
	free(hashes);
	free(slots);
	return -1;
}
