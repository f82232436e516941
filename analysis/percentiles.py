"""Distributions of integers: how often each value occurred, exactly or in narrow bins.

`Distribution` is their interface: count, total, minimum, maximum, percentile, waiting_percentile, tail, items, `+`.
`ValueCounts` keeps every value; `histogram.Histogram` a bounded number of them, at a stated error.
"""

import numpy as np

# Name to p as an exact fraction: nearest rank is integer arithmetic, and 0.999 is not a float.
PERCENTILES = {"p50": (50, 100), "p90": (90, 100), "p99": (99, 100), "p99_9": (999, 1000)}
ENOUGH_BEYOND = 10  # a percentile is shown if at least so many values lie beyond it

_COMPACT_ROWS = 1 << 20


def enough(count: int, fraction: tuple[int, int]) -> bool:
    """n (1 - p) >= 10, in integers."""
    numerator, denominator = fraction
    return count * (denominator - numerator) >= ENOUGH_BEYOND * denominator


class Distribution:
    """What all distributions can tell. A subclass has items(), totals(), count, total, minimum, maximum and `+`.

    error: how far a value that is told may lie from the one that occurred, as a part of it. Counts, the total, the
    smallest and the largest value are exact in any case.
    """

    error = 0.0

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        """(values ascending, how often each occurred)."""
        raise NotImplementedError

    def totals(self) -> np.ndarray:
        """The sum of the values behind each item."""
        raise NotImplementedError

    def percentile(self, fraction: tuple[int, int]) -> int | None:
        """Nearest rank: the value at rank ceil(n p) of the sorted values. None of an empty set."""
        numerator, denominator = fraction
        return self.of_rank(max(1, -(-self.count * numerator // denominator))) if self.count else None

    def of_rank(self, rank: int) -> int:
        """The value at a rank, from 1 to count. The first and the last are known exactly."""
        if rank in (1, self.count):
            return self.minimum if rank == 1 else self.maximum
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
        """At most `points` of (value, how many values are at least as large), spread evenly in the logarithm
        of the second, from all of them down to 1: what a tail chart draws."""
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
    """A multiset of int64 values. Adding in any split or order gives the same multiset."""

    def __init__(self):
        self._values = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._pending, self._pending_rows = [], 0

    @classmethod
    def of(cls, values: np.ndarray, counts: np.ndarray) -> "ValueCounts":
        """From values, ascending and each once, and how often each occurred."""
        made = cls()
        made._values, made._counts = np.asarray(values, np.int64), np.asarray(counts, np.int64)
        return made

    def add(self, values: np.ndarray) -> None:
        """Take in values. The array is copied: a caller's batch may be reused or freed."""
        if not len(values):
            return
        self._pending.append(np.array(values, np.int64))
        self._pending_rows += len(values)
        if self._pending_rows >= _COMPACT_ROWS:
            self._compact()

    def __add__(self, other: Distribution) -> Distribution:
        """An exact distribution, or a binned one where the other is binned."""
        if not isinstance(other, ValueCounts):
            return self.to_histogram() + other if isinstance(other, Distribution) else NotImplemented
        (values_a, counts_a), (values_b, counts_b) = self.items(), other.items()
        return ValueCounts.of(*merged(np.concatenate([values_a, values_b]), np.concatenate([counts_a, counts_b])))

    def to_histogram(self):
        """The same values in bins."""
        from .histogram import Histogram  # which knows this class
        return Histogram.of(*self.items())

    def __eq__(self, other) -> bool:
        return isinstance(other, ValueCounts) and all(
            np.array_equal(mine, theirs) for mine, theirs in zip(self.items(), other.items(), strict=True))

    __hash__ = None

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        self._compact()
        return self._values, self._counts

    def totals(self) -> np.ndarray:
        values, counts = self.items()
        return values * counts

    @property
    def count(self) -> int:
        return int(self.items()[1].sum())

    @property
    def total(self) -> int:
        return int(self.totals().sum())

    @property
    def minimum(self) -> int | None:
        values, _ = self.items()
        return int(values[0]) if len(values) else None

    @property
    def maximum(self) -> int | None:
        values, _ = self.items()
        return int(values[-1]) if len(values) else None

    def _compact(self):
        if not self._pending:
            return
        values, counts = np.unique(np.concatenate(self._pending), return_counts=True)
        self._pending, self._pending_rows = [], 0
        self._values, self._counts = merged(np.concatenate([self._values, values]),
                                            np.concatenate([self._counts, counts]))


def merged(values: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the values, ascending and each once, the sum of the counts of each)."""
    distinct, where = np.unique(values, return_inverse=True)
    summed = np.zeros(len(distinct), np.int64)
    np.add.at(summed, where, counts)
    return distinct, summed
