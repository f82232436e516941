"""Exact distributions of integers: how often each value occurred.

`ValueCounts` is the interface of a distribution in this package: add, +, count, total, maximum, percentile,
waiting_percentile, tail. Whatever keeps fewer values at a stated error can stand in for it.
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


class ValueCounts:
    """A multiset of int64 values. Adding in any split or order gives the same multiset."""

    def __init__(self):
        self._values = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._pending, self._pending_rows = [], 0

    def add(self, values: np.ndarray) -> None:
        """Take in values. The array is copied: a caller's batch may be reused or freed."""
        if not len(values):
            return
        self._pending.append(np.array(values, np.int64))
        self._pending_rows += len(values)
        if self._pending_rows >= _COMPACT_ROWS:
            self._compact()

    def __add__(self, other: "ValueCounts") -> "ValueCounts":
        pooled = ValueCounts()
        (values_a, counts_a), (values_b, counts_b) = self.items(), other.items()
        pooled._values, pooled._counts = _merge(np.concatenate([values_a, values_b]),
                                                np.concatenate([counts_a, counts_b]))
        return pooled

    def __eq__(self, other) -> bool:
        return isinstance(other, ValueCounts) and all(
            np.array_equal(mine, theirs) for mine, theirs in zip(self.items(), other.items(), strict=True))

    __hash__ = None

    def items(self) -> tuple[np.ndarray, np.ndarray]:
        """(values ascending, how often each occurred)."""
        self._compact()
        return self._values, self._counts

    @property
    def count(self) -> int:
        return int(self.items()[1].sum())

    @property
    def total(self) -> int:
        values, counts = self.items()
        return int((values * counts).sum())

    @property
    def maximum(self) -> int | None:
        values, _ = self.items()
        return int(values[-1]) if len(values) else None

    def percentile(self, fraction: tuple[int, int]) -> int | None:
        """Nearest rank: the value at rank ceil(n p) of the sorted values. None of an empty set."""
        values, counts = self.items()
        if not len(values):
            return None
        numerator, denominator = fraction
        rank = max(1, -(-int(counts.sum()) * numerator // denominator))
        return int(values[np.searchsorted(np.cumsum(counts), rank)])

    def waiting_percentile(self, fraction: tuple[int, int]) -> int | None:
        """The smallest x with sum(l where l <= x) >= p sum(l): p of all waiting was in I/Os up to x."""
        values, counts = self.items()
        cumulative = np.cumsum(values * counts)
        if not len(values) or cumulative[-1] <= 0:
            return None
        numerator, denominator = fraction
        return int(values[np.searchsorted(cumulative, -(-int(cumulative[-1]) * numerator // denominator))])

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
        return [(int(value), int(number)) for value, number in zip(picked, at_least, strict=True)]

    def _compact(self):
        if not self._pending:
            return
        values, counts = np.unique(np.concatenate(self._pending), return_counts=True)
        self._pending, self._pending_rows = [], 0
        self._values, self._counts = _merge(np.concatenate([self._values, values]),
                                            np.concatenate([self._counts, counts]))


def _merge(values, counts):
    distinct, where = np.unique(values, return_inverse=True)
    summed = np.zeros(len(distinct), np.int64)
    np.add.at(summed, where, counts)
    return distinct, summed
