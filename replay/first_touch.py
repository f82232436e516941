"""What a trace reads before it has written it.

A drive answers a read of a block that was never written without touching its flash, so these blocks are
written once beforehand. Whether a block needs that depends on its first toucher alone.
"""

import numpy as np

from .extents import Extents


class FirstTouch:
    """Takes I/Os in order. touched: all they cover. read_first: the part that a read touched first."""

    def __init__(self):
        self.touched = Extents.none()
        self.read_first = Extents.none()

    def add(self, start: np.ndarray, end: np.ndarray, is_read: np.ndarray) -> None:
        """The next I/Os, in their order. A discard touches like a write: what it unmaps was meant to be."""
        some = end > start
        start, end, is_read = start[some], end[some], is_read[some]
        if not len(start):
            return
        fresh = _first_by_read(start, end, is_read).minus(self.touched)
        if len(fresh):
            self.read_first = self.read_first.union(fresh)
        self.touched = self.touched.union(Extents.of(start, end))


def _first_by_read(start, end, is_read) -> Extents:
    """The bytes whose first toucher among these I/Os is a read.

    Between two neighbouring end points all bytes have the same touchers. The first of each such segment is the
    least index of the ranges over it. A range of n segments is covered by two overlapping runs of 2^k <= n of
    them, so it takes two entries in a table of runs by k, which is then handed down from long runs to short
    ones: n log n, and no loop over I/Os.
    """
    points = np.unique(np.concatenate([start, end]))
    low, high = np.searchsorted(points, start), np.searchsorted(points, end)
    level = np.frexp(high - low)[1] - 1
    index = np.arange(len(start))
    nobody = len(start)
    first = np.full(len(points), nobody)
    for k in range(int(level.max()), -1, -1):
        run = 1 << k
        here = level == k
        np.minimum.at(first, low[here], index[here])
        np.minimum.at(first, high[here] - run, index[here])
        if k:
            half = run >> 1
            above = first
            first = above.copy()
            np.minimum(first[half:], above[:-half], out=first[half:])
    first = first[:-1]
    needs = np.zeros(len(first), bool)
    covered = first < nobody
    needs[covered] = is_read[first[covered]]
    return Extents.of(points[:-1][needs], points[1:][needs])
