"""Distributions in bins: as many values as one likes in some thousand bins, and partials that are small to keep.

Bins are log-linear: each integer below 512 has its own, above that 256 to each power of two, and negative values mirror
them. So no bin is wider than 1/256 of its values, and the mean of those that fell into it, which stands for them, is
less than that off. analysis/native/histogram.h has the same bins in C.
"""

import numpy as np

from .percentiles import Distribution

BIN_BITS = 8
_OCTAVE = 1 << BIN_BITS


def bins_of(values: np.ndarray) -> np.ndarray:
    """The number of each value's bin, ascending with the value; of int64 within 2^62."""
    values = np.asarray(values, np.int64)
    size = np.abs(values)
    # As floats, numbers just below a power of two above 2^53 round up to it.
    power = np.frexp(size.astype(np.float64))[1].astype(np.int64) - 1
    power -= (size >> np.maximum(power, 0) == 0) & (size > 0)
    octave = np.maximum(power - BIN_BITS, 0)
    bins = octave * _OCTAVE + (size >> octave)
    return np.where(values < 0, -bins, bins)


class Histogram(Distribution):
    """A distribution in bins: exact counts, total, smallest and largest value; others to 1/256."""

    error = 1 / _OCTAVE

    def __init__(self):
        self._bins = self._counts = self._totals = np.empty(0, np.int64)
        self._count = self._total = 0
        self.minimum = self.maximum = None

    @classmethod
    def of(cls, values: np.ndarray, counts: np.ndarray) -> "Histogram":
        """From values in any order and how often each occurred."""
        if not len(values):
            return cls()
        values, counts = np.asarray(values, np.int64), np.asarray(counts, np.int64)
        return cls.of_bins(bins_of(values), counts, values * counts, int(values.min()), int(values.max()))

    @classmethod
    def of_bins(cls, bins, counts, totals, minimum: int | None, maximum: int | None) -> "Histogram":
        """From bins in any order, how many values each has and their sum. A bin that occurs twice is added up."""
        made = cls()
        made._bins, where = np.unique(np.asarray(bins, np.int64), return_inverse=True)
        made._counts, made._totals = (np.zeros(len(made._bins), np.int64) for _ in range(2))
        np.add.at(made._counts, where, counts)
        np.add.at(made._totals, where, totals)
        made._count, made._total = int(made._counts.sum()), sum(made._totals.tolist())
        made.minimum, made.maximum = (minimum, maximum) if made._count else (None, None)
        return made

    def bins(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(numbers ascending, counts, sums of the values) of the bins that are not empty."""
        return self._bins, self._counts, self._totals

    def add(self, values: np.ndarray) -> None:
        """Take in values."""
        pooled = self + Histogram.of(values, np.ones(len(values), np.int64))
        vars(self).update(vars(pooled))

    def __add__(self, other: Distribution) -> "Histogram":
        if not isinstance(other, Histogram):
            other = other.to_histogram()
        smallest = [each.minimum for each in (self, other) if each.minimum is not None]
        largest = [each.maximum for each in (self, other) if each.maximum is not None]
        return Histogram.of_bins(*(np.concatenate(pair) for pair in zip(self.bins(), other.bins(), strict=True)),
                                 min(smallest, default=None), max(largest, default=None))

    def to_histogram(self) -> "Histogram":
        return self

    def __eq__(self, other) -> bool:
        return (isinstance(other, Histogram) and (self.minimum, self.maximum) == (other.minimum, other.maximum)
                and all(np.array_equal(a, b) for a, b in zip(self.bins(), other.bins(), strict=True)))

    __hash__ = None

    @property
    def count(self) -> int:
        return self._count

    @property
    def total(self) -> int:
        return self._total

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        """(mean of each bin, rounded to an integer; how many values it has)."""
        whole, rest = np.divmod(self._totals, self._counts)  # the double of a total may not fit
        return whole + (rest >= self._counts - rest), self._counts

    def totals(self) -> np.ndarray:
        return self._totals
