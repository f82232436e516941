/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Counts and sums of values in log-linear bins, 256 per power of two: a bin is at most 1/256 of its values wide, and
 * values below 512 have their own. The mean of a bin represents its values. analysis/metrics/partials/distributions.py has the same
 * bins.
 */
#pragma once

#include "binning.h"

#include <stdint.h>
#include <stdlib.h>

#define BIN_BITS 8
#define BINS_OF_OCTAVE (1 << BIN_BITS)
/* Values below 2^62. */
#define HISTOGRAM_BINS (2 * BINS_OF_OCTAVE + (62 - BIN_BITS - 1) * BINS_OF_OCTAVE)

struct bin {
	int64_t count;
	int64_t total;
};

struct histogram {
	struct bin *bins;
	struct bin *below; /* of negative values, by their size; NULL: none yet */
	int64_t smallest;
	int64_t largest;
};

static inline unsigned bin_of(uint64_t size)
{
	return log_linear_bin(size, BIN_BITS);
}

int histogram_add_below(struct histogram *histogram, int64_t value);

static inline int histogram_add(struct histogram *histogram, int64_t value)
{
	struct bin *bin;

	if (value < histogram->smallest)
		histogram->smallest = value;
	if (value > histogram->largest)
		histogram->largest = value;
	if (__builtin_expect(value < 0, 0))
		return histogram_add_below(histogram, value);
	bin = &histogram->bins[bin_of((uint64_t)value)];
	bin->count++;
	bin->total += value;
	return 0;
}

int histogram_init(struct histogram *histogram);
void histogram_deinit(struct histogram *histogram);

/* Returns the length of PART_HISTOGRAM in int64, and writes as much as there is room for. */
int64_t histogram_read(const struct histogram *histogram, int64_t *values, size_t capacity);
