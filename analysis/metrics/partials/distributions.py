"""Distributions of integers: how often each value occurred, exactly or in narrow bins.

`ValueCounts` stores every value. `Histogram` stores log-linear bins: each integer below 512 has its own bin, above that
there are 256 bins for each power of two, and negative values mirror them. So no bin is wider than 1/256 of its values,
and the mean of a bin, which represents its values, has a smaller error. native/histogram.h has the same bins in C.
"""

from typing import overload

import numpy as np

from blkreel.common.binning import LogLinearBins
from blkreel.common.errors import TraceError

# Name to p as an exact fraction: nearest rank is integer arithmetic, and 0.999 is not a float.
PERCENTILES = {"p50": (50, 100), "p90": (90, 100), "p99": (99, 100), "p99_9": (999, 1000)}

BIN_BITS = 8
_BINS = LogLinearBins(BIN_BITS)
_COMPACT_ROWS = 1 << 20


class Distribution:
    """The interface of all distributions. minimum, maximum: None of an empty one.

    error: largest relative error of a value. Counts, the total, the minimum and the maximum are always exact.
    """

    error = 0.0

    @property
    def count(self) -> int:
        raise NotImplementedError

    @property
    def total(self) -> int:
        raise NotImplementedError

    @property
    def minimum(self) -> int | None:
        raise NotImplementedError

    @property
    def maximum(self) -> int | None:
        raise NotImplementedError

    def __add__(self, other: "Distribution") -> "Distribution":
        raise NotImplementedError

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        """(values ascending, how often each occurred)."""
        raise NotImplementedError

    def totals(self) -> np.ndarray:
        """The sum of the values of each item."""
        raise NotImplementedError

    def to_histogram(self) -> "Histogram":
        """The same values in bins."""
        return Histogram.of(*self.items())

    def percentile(self, fraction: tuple[int, int]) -> int | None:
        """Nearest rank: the value at rank ceil(n p) of the sorted values. None of an empty set."""
        numerator, denominator = fraction
        return self.of_rank(max(1, -(-self.count * numerator // denominator))) if self.count else None

    def of_rank(self, rank: int) -> int:
        """The value at a rank, from 1 to count. The first and the last are exact."""
        exact = self.minimum if rank == 1 else self.maximum if rank == self.count else None
        if exact is not None:
            return exact
        values, counts = self.items()
        return int(values[np.searchsorted(np.cumsum(counts), rank)])

    def waiting_percentile(self, fraction: tuple[int, int]) -> int | None:
        """The smallest x with sum(l where l <= x) >= p sum(l): p of all waiting was in I/Os up to x."""
        cumulative = np.cumsum(self.totals())
        if not len(cumulative) or cumulative[-1] <= 0:
            return None
        numerator, denominator = fraction
        return int(self.items()[0][np.searchsorted(cumulative, -(-int(cumulative[-1]) * numerator // denominator))])

    def tail(self, points: int) -> list[tuple[int, int]]:
        """The points of a tail chart: at most `points` of (value, number of values at least as large). The numbers
        descend from count to 1 at even distances in the logarithm."""
        values, counts = self.items()
        if not len(values):
            return []
        cumulative = np.cumsum(counts)
        total = int(cumulative[-1])
        at_least = np.unique(np.geomspace(1, total, points).round().astype(np.int64))[::-1]
        picked = values[np.searchsorted(cumulative, total - at_least + 1)]
        picked[-1] = self.maximum
        return [(int(value), int(number)) for value, number in zip(picked, at_least, strict=True)]


class ValueCounts(Distribution):
    """A multiset of int64 values. Any split and order of additions gives the same multiset."""

    def __init__(self) -> None:
        self._values = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._pending: list[np.ndarray] = []
        self._pending_rows = 0

    @classmethod
    def of(cls, values: np.ndarray, counts: np.ndarray) -> "ValueCounts":
        """From distinct ascending values and their counts."""
        result = cls()
        result._values, result._counts = np.asarray(values, np.int64), np.asarray(counts, np.int64)
        return result

    def add(self, values: np.ndarray) -> None:
        """Add values. The array is copied: the caller may reuse or free it."""
        if not len(values):
            return
        self._pending.append(np.array(values, np.int64))
        self._pending_rows += len(values)
        if self._pending_rows >= _COMPACT_ROWS:
            self._compact()

    @overload
    def __add__(self, other: "ValueCounts") -> "ValueCounts": ...

    @overload
    def __add__(self, other: Distribution) -> Distribution: ...

    def __add__(self, other: Distribution) -> Distribution:
        """An exact distribution; a binned one if the other is binned."""
        if not isinstance(other, ValueCounts):
            return self.to_histogram() + other
        (values_a, counts_a), (values_b, counts_b) = self.items(), other.items()
        return ValueCounts.of(*merged(np.concatenate([values_a, values_b]), np.concatenate([counts_a, counts_b])))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueCounts) and all(
            np.array_equal(a, b) for a, b in zip(self.items(), other.items(), strict=True))

    @property
    def distinct(self) -> int:
        """The number of different values, without those of the latest additions."""
        return len(self._values)

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        self._compact()
        return self._values, self._counts

    def totals(self) -> np.ndarray:
        return _products(*self.items())

    @property
    def count(self) -> int:
        return int(self.items()[1].sum())

    @property
    def total(self) -> int:
        return sum(self.totals().tolist())  # the sum may not fit into 64 bits

    @property
    def minimum(self) -> int | None:
        values, _ = self.items()
        return int(values[0]) if len(values) else None

    @property
    def maximum(self) -> int | None:
        values, _ = self.items()
        return int(values[-1]) if len(values) else None

    def _compact(self) -> None:
        if not self._pending:
            return
        values, counts = np.unique(np.concatenate(self._pending), return_counts=True)
        self._pending, self._pending_rows = [], 0
        self._values, self._counts = merged(np.concatenate([self._values, values]),
                                            np.concatenate([self._counts, counts]))


def merged(values: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(distinct values ascending, sum of the counts of each)."""
    order = np.argsort(values, kind="stable")
    values, counts = values[order], counts[order]
    begins = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]])) if len(values) else order
    return values[begins], np.add.reduceat(counts, begins) if len(values) else counts


def _products(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The sum of each value's occurrences. Raises TraceError if one has more than 64 bits."""
    _refuse_overflow(np.abs(np.asarray(values, np.float64)) * counts)
    products: np.ndarray = values * counts
    return products


def _refuse_overflow(magnitudes: np.ndarray) -> None:
    if len(magnitudes) and magnitudes.max() >= 2.0**63:
        raise TraceError("sums of these I/Os have more than 64 bits", "check the traces: blkreel check TRACE")


def bins_of(values: np.ndarray) -> np.ndarray:
    """The bin number of each value, ascending with the value. Values are int64 within ±2^62."""
    values = np.asarray(values, np.int64)
    bins = _BINS.of(np.abs(values))
    return np.where(values < 0, -bins, bins)


class Histogram(Distribution):
    """A distribution in log-linear bins."""

    error = 1 / (1 << BIN_BITS)
    count: int = 0
    total: int = 0
    minimum: int | None = None
    maximum: int | None = None

    def __init__(self) -> None:
        self._bins = self._counts = self._totals = np.empty(0, np.int64)

    @classmethod
    def of(cls, values: np.ndarray, counts: np.ndarray) -> "Histogram":
        """From values in any order and their counts."""
        if not len(values):
            return cls()
        values, counts = np.asarray(values, np.int64), np.asarray(counts, np.int64)
        return cls.of_bins(bins_of(values), counts, _products(values, counts), int(values.min()), int(values.max()))

    @classmethod
    def of_bins(cls, bins: np.ndarray, counts: np.ndarray, totals: np.ndarray, minimum: int | None,
                maximum: int | None) -> "Histogram":
        """From bin numbers in any order, the number of values in each and their sum. Equal bins are added up."""
        result = cls()
        result._bins, where = np.unique(np.asarray(bins, np.int64), return_inverse=True)
        result._counts, result._totals = (np.zeros(len(result._bins), np.int64) for _ in range(2))
        np.add.at(result._counts, where, counts)
        np.add.at(result._totals, where, totals)
        _refuse_overflow(np.bincount(where, np.abs(np.asarray(totals, np.float64)), len(result._bins)))
        result.count, result.total = int(result._counts.sum()), sum(result._totals.tolist())
        result.minimum, result.maximum = (minimum, maximum) if result.count else (None, None)
        return result

    def bins(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(numbers ascending, counts, sums of the values) of the bins that are not empty."""
        return self._bins, self._counts, self._totals

    def add(self, values: np.ndarray) -> None:
        pooled = self + Histogram.of(values, np.ones(len(values), np.int64))
        vars(self).update(vars(pooled))

    def __add__(self, other: Distribution) -> "Histogram":
        binned = other.to_histogram()
        smallest = [histogram.minimum for histogram in (self, other) if histogram.minimum is not None]
        largest = [histogram.maximum for histogram in (self, other) if histogram.maximum is not None]
        bins, counts, totals = (np.concatenate(pair) for pair in zip(self.bins(), binned.bins(), strict=True))
        return Histogram.of_bins(bins, counts, totals,
                                 min(smallest, default=None), max(largest, default=None))

    def to_histogram(self) -> "Histogram":
        return self

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Histogram) and (self.minimum, self.maximum) == (other.minimum, other.maximum)
                and all(np.array_equal(a, b) for a, b in zip(self.bins(), other.bins(), strict=True)))

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        """(mean of each bin, rounded to an integer; how many values it has)."""
        whole, remainder = np.divmod(self._totals, self._counts)  # the double of a total may not fit
        return whole + (remainder >= self._counts - remainder), self._counts

    def totals(self) -> np.ndarray:
        return self._totals
