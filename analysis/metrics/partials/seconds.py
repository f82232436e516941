"""Completions in each second of a run, stored only for seconds with completions.

A trace of months with few I/Os has millions of seconds without completions. They count as zeros in every metric and
take no memory.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .distributions import ValueCounts, merged
from .record import Record

SECOND_NS = 10**9
# A run of at most this many bins (almost three hours) lists all of them.
LISTED = 10_000


def _none() -> np.ndarray:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Bins(Record):
    """The 1 s bins of one run since its first submit. length: number of bins with the empty ones.

    filled: ascending numbers of the seconds with completions; ops: completions in each. whole: number of bins that the
    run covers to their end; a last bin that is cut off gives no rate.
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
        """Join two consecutive parts of one run."""
        filled = np.concatenate([self.filled, later.filled])
        return Bins.of(*merged(filled, np.concatenate([self.ops, later.ops])), span_ns)

    def dense(self, length: int | None = None) -> np.ndarray:
        """All bins, 8 bytes for each second. length: of the array, at least self.length."""
        bins = np.zeros(self.length if length is None else length, np.int64)
        bins[self.filled] = self.ops
        return bins

    def at(self, seconds: np.ndarray) -> np.ndarray:
        """The bins of `seconds`, which ascend and include all of self.filled."""
        bins = np.zeros(len(seconds), np.int64)
        bins[np.searchsorted(seconds, self.filled)] = self.ops
        return bins

    def together(self, count: int) -> np.ndarray:
        """The mean of each `count` successive bins; the last group may have fewer."""
        groups = -(-self.length // count)
        sums = np.zeros(groups, np.int64)
        np.add.at(sums, self.filled // count, self.ops)
        sizes = np.full(groups, count)
        sizes[-1:] = self.length - (groups - 1) * count
        means: np.ndarray = sums / sizes
        return means

    def counts(self) -> ValueCounts:
        """Distribution of the completions per whole second, with zeros."""
        within = np.searchsorted(self.filled, self.whole)
        values, times = np.unique(self.ops[:within], return_counts=True)
        empty = self.whole - int(within)
        if empty:
            values, times = np.concatenate([[0], values]), np.concatenate([[empty], times])
        return ValueCounts.of(values, times)

    @cached_property
    def document(self) -> list[int] | dict[str, Any]:
        """For the JSON document: a list of all bins; of a long run with most seconds empty, only the others
        as {"seconds": length, "at_s": filled, "ops": ops}."""
        if self.length <= LISTED or 2 * len(self.filled) >= self.length:
            bins: list[int] = self.dense().tolist()
            return bins
        return {"seconds": self.length, "at_s": self.filled.tolist(), "ops": self.ops.tolist()}



@dataclass(frozen=True)
class Seconds:
    """The bins of each run."""

    runs: tuple[Bins, ...] = ()

    @classmethod
    def of_native(cls, numbers: np.ndarray, span_ns: int | None) -> "Seconds":
        """Of one run, from PART_SECONDS of native/metrics.h."""
        filled, ops = numbers.reshape(-1, 2).T
        order = np.argsort(filled, kind="stable")  # fast for input that is almost sorted
        return cls((Bins.of(filled[order], ops[order], span_ns),))

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.runs + other.runs)

    def join(self, later: "Seconds", span_ns: int | None) -> "Seconds":
        """Join two consecutive parts of one run."""
        return Seconds((self.runs[0].join(later.runs[0], span_ns),))

    def whole(self) -> ValueCounts:
        """Distribution of the completions per whole second, of all runs."""
        counts = ValueCounts()
        for bins in self.runs:
            counts = counts + bins.counts()
        return counts
