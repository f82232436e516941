/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Log-linear bins, as in common/binning.py: 2^bits bins per power of two, and a bin of its own for each integer below
 * 2^(bits + 1).
 */
#pragma once

#include <stdint.h>

static inline uint32_t log_linear_bin(uint64_t value, unsigned bits)
{
	unsigned octave;

	if (value < 2u << bits)
		return (uint32_t)value;
	octave = 63 - bits - (unsigned)__builtin_clzll(value);
	return (octave << bits) + (uint32_t)(value >> octave);
}
