/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "histogram.h"

#include <errno.h>

int histogram_init(struct histogram *histogram)
{
	/* calloc, because untouched pages use no memory and most bins stay empty. */
	histogram->bins = calloc(HISTOGRAM_BINS, sizeof(*histogram->bins));
	histogram->below = NULL;
	histogram->smallest = INT64_MAX;
	histogram->largest = INT64_MIN;
	return histogram->bins ? 0 : -ENOMEM;
}

void histogram_deinit(struct histogram *histogram)
{
	free(histogram->bins);
	free(histogram->below);
}

int histogram_add_below(struct histogram *histogram, int64_t value)
{
	struct bin *bin;

	if (!histogram->below)
		histogram->below = calloc(HISTOGRAM_BINS, sizeof(*histogram->below));
	if (!histogram->below)
		return -ENOMEM;
	bin = &histogram->below[bin_of((uint64_t)-value)];
	bin->count++;
	bin->total += value;
	return 0;
}

struct out {
	int64_t *values;
	size_t capacity;
	size_t length;
	int64_t count;
	int64_t total;
};

static void put_bin(struct out *out, int64_t number, const struct bin *bin)
{
	if (!bin->count)
		return;
	if (out->length + 3 <= out->capacity) {
		out->values[out->length] = number;
		out->values[out->length + 1] = bin->count;
		out->values[out->length + 2] = bin->total;
	}
	out->length += 3;
	out->count += bin->count;
	out->total += bin->total;
}

int64_t histogram_read(const struct histogram *histogram, int64_t *values, size_t capacity)
{
	struct out out = { .values = values, .capacity = capacity, .length = 4 };

	/* Only the bins in use: reading others would allocate their pages. */
	for (int64_t i = histogram->below ? bin_of((uint64_t)-histogram->smallest) + 1 : 0; i-- > 1;)
		put_bin(&out, -i, &histogram->below[i]);
	for (int64_t i = 0; histogram->largest >= 0 && i <= bin_of((uint64_t)histogram->largest); i++)
		put_bin(&out, i, &histogram->bins[i]);
	if (capacity >= 4) {
		values[0] = out.count;
		values[1] = out.total;
		values[2] = histogram->smallest;
		values[3] = histogram->largest;
	}
	return (int64_t)out.length;
}
