/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Counts and sums of values in bins whose width grows with the value: 256 to each power of two, so that values below 512
 * have a bin of their own and no bin is wider than 1/256 of its values. The mean of a bin's values stands for them.
 * analysis/histogram.py has the same bins.
 */
#ifndef BLKREEL_HISTOGRAM_H
#define BLKREEL_HISTOGRAM_H

#include <stdint.h>
#include <stdlib.h>

#define BIN_BITS 8
#define BINS_OF_OCTAVE (1 << BIN_BITS)
/* Values below 2^62. */
#define HISTOGRAM_BINS (2 * BINS_OF_OCTAVE + (62 - BIN_BITS - 1) * BINS_OF_OCTAVE)

/* Side by side: they are always changed together. */
struct bin {
	int64_t count;
	int64_t total;
};

/* below: the bins of negative values by their size, NULL while there are none. */
struct histogram {
	struct bin *bins;
	struct bin *below;
	int64_t smallest;
	int64_t largest;
};

static inline unsigned bin_of(uint64_t size)
{
	unsigned octave;

	if (size < 2 * BINS_OF_OCTAVE)
		return size;
	octave = 63 - BIN_BITS - __builtin_clzll(size);
	return octave * BINS_OF_OCTAVE + (size >> octave);
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
	bin = &histogram->bins[bin_of(value)];
	bin->count++;
	bin->total += value;
	return 0;
}

int histogram_init(struct histogram *histogram);
void histogram_deinit(struct histogram *histogram);

/* Length in int64, as PART_HISTOGRAM says; written where there is room. */
int64_t histogram_read(const struct histogram *histogram, int64_t *values, size_t capacity);

#endif
