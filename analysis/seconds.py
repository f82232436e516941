"""Completions in each second of a run: kept of the seconds that have some, figured as if each stood there.

A trace of months with few I/Os has millions of seconds in which nothing was completed. They count as zeros in every
figure, and take no memory.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .percentiles import ValueCounts, merged

SECOND_NS = 10**9
# Up to so many bins a run lists each, empty or not: near three hours.
LISTED = 10_000


def _none():
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Bins:
    """The 1 s bins of one run since its first submit. length: how many, empty ones included.

    filled: the seconds in which something was completed, ascending from 0; ops: how much, above 0. whole: how many bins
    were measured to their end, which the last one was not as a rule: cut off, it says nothing of the rate.
    """

    filled: np.ndarray = field(default_factory=_none)
    ops: np.ndarray = field(default_factory=_none)
    length: int = 0
    whole: int = 0

    @classmethod
    def of(cls, filled: np.ndarray, ops: np.ndarray, span_ns: int | None) -> "Bins":
        """From seconds that ascend, each once. span_ns: from the first submit of the run to its last completion, of all
        classes, so that each has as many bins; None where there was none."""
        return cls() if span_ns is None else cls(filled, ops, span_ns // SECOND_NS + 1, span_ns // SECOND_NS)

    def join(self, later: "Bins", span_ns: int | None) -> "Bins":
        """Of two parts of one run, that count from the same origin."""
        filled = np.concatenate([self.filled, later.filled])
        return Bins.of(*merged(filled, np.concatenate([self.ops, later.ops])), span_ns)

    def dense(self, length: int | None = None) -> np.ndarray:
        """Every bin, empty or not: 8 bytes for each second. length: to be filled up to, not less than there are."""
        bins = np.zeros(self.length if length is None else length, np.int64)
        bins[self.filled] = self.ops
        return bins

    def at(self, seconds: np.ndarray) -> np.ndarray:
        """The bins of `seconds`, which ascend and hold all that are filled."""
        bins = np.zeros(len(seconds), np.int64)
        bins[np.searchsorted(seconds, self.filled)] = self.ops
        return bins

    def together(self, count: int) -> np.ndarray:
        """The mean of each `count` successive bins, of those that are there where the last are fewer."""
        groups = -(-self.length // count)
        sums = np.zeros(groups, np.int64)
        np.add.at(sums, self.filled // count, self.ops)
        sizes = np.full(groups, count)
        sizes[-1:] = self.length - (groups - 1) * count
        return sums / sizes

    def counts(self) -> ValueCounts:
        """How often each number of completions occurred in the whole seconds, zero among them."""
        within = np.searchsorted(self.filled, self.whole)
        values, times = np.unique(self.ops[:within], return_counts=True)
        empty = self.whole - int(within)
        if empty:
            values, times = np.concatenate([[0], values]), np.concatenate([[empty], times])
        return ValueCounts.of(values, times)

    @cached_property
    def shown(self) -> list[int] | dict:
        """As the document has it: each bin in a list; of a long run with most of its seconds empty the others only,
        as {"seconds": length, "at_s": filled, "ops": ops}."""
        if self.length <= LISTED or 2 * len(self.filled) >= self.length:
            return self.dense().tolist()
        return {"seconds": self.length, "at_s": self.filled.tolist(), "ops": self.ops.tolist()}

    def __eq__(self, other) -> bool:
        return (isinstance(other, Bins) and (self.length, self.whole) == (other.length, other.whole)
                and np.array_equal(self.filled, other.filled) and np.array_equal(self.ops, other.ops))

    __hash__ = None


@dataclass(frozen=True)
class Seconds:
    """The bins of each run."""

    runs: tuple[Bins, ...] = ()

    @classmethod
    def of_native(cls, numbers: np.ndarray, span_ns: int | None) -> "Seconds":
        """Of one run, from PART_SECONDS of native/metrics.h."""
        filled, ops = numbers.reshape(-1, 2).T
        order = np.argsort(filled, kind="stable")  # which is quick with what is nearly in order
        return cls((Bins.of(filled[order], ops[order], span_ns),))

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.runs + other.runs)

    def join(self, later: "Seconds", span_ns: int | None) -> "Seconds":
        """Of two parts of one run, that count from the same origin."""
        return Seconds((self.runs[0].join(later.runs[0], span_ns),))

    def whole(self) -> ValueCounts:
        """How often each number of completions occurred in the seconds that were measured to their end, of all runs."""
        counts = ValueCounts()
        for bins in self.runs:
            counts = counts + bins.counts()
        return counts
