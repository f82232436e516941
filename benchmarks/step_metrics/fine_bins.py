"""Completions over time in bins, with pauses to the nanosecond, in bounded memory.

These are bins of time for a series, not of values for a distribution (common/binning.py).
"""

import numpy as np

from blkreel.benchmarks.step_metrics import Array

FIRST_WIDTH_NS = 1_000_000
MAX_BINS = 1 << 22  # over an hour of milliseconds
_LATE = np.iinfo(np.int64).max


class FineBins:
    """Takes completion times in any order. Bins are 1 ms wide; their width doubles when MAX_BINS are used.

    Each bin has its first and last completion: a pause longer than a bin crosses a border, so both ends are known.
    """

    def __init__(self, origin_ns: int):
        self.origin_ns = origin_ns
        self.width_ns = FIRST_WIDTH_NS
        self._counts: Array = np.zeros(1024, np.int64)
        self._first: Array = np.full(1024, _LATE)
        self._last: Array = np.full(1024, -1, np.int64)
        self.used = 0

    def add(self, complete_ns: Array) -> None:
        if not len(complete_ns):
            return
        times = np.sort(complete_ns - self.origin_ns)
        while int(times[-1]) // self.width_ns >= MAX_BINS:
            self._coarsen()
        bins = times // self.width_ns
        starts = np.concatenate([[0], np.flatnonzero(np.diff(bins)) + 1])
        ends = np.append(starts[1:], len(times))
        where = bins[starts]
        self._reserve(int(where[-1]) + 1)
        self._counts[where] += ends - starts
        self._first[where] = np.minimum(self._first[where], times[starts])
        self._last[where] = np.maximum(self._last[where], times[ends - 1])

    @property
    def counts(self) -> Array:
        return self._counts[:self.used]

    def grouped(self, width_ns: int) -> Array:
        """Counts in bins of about width_ns: the nearest multiple of fine bins, at least one."""
        together = max(1, round(width_ns / self.width_ns))
        whole = self.used // together * together
        counts: Array = self.counts[:whole].reshape(-1, together).sum(axis=1)
        return counts

    def pauses(self) -> tuple[Array, Array]:
        """(begin, length) in ns from the origin, of the pauses between successive completions in different bins: all
        pauses longer than a bin."""
        filled = np.flatnonzero(self.counts)
        begin = self._last[filled[:-1]]
        return begin, self._first[filled[1:]] - begin

    def _reserve(self, bins: int) -> None:
        if bins > len(self._counts):
            room = max(bins, min(2 * len(self._counts), MAX_BINS)) - len(self._counts)
            self._counts = np.pad(self._counts, (0, room))
            self._first = np.pad(self._first, (0, room), constant_values=_LATE)
            self._last = np.pad(self._last, (0, room), constant_values=-1)
        self.used = max(self.used, bins)

    def _coarsen(self) -> None:
        self.width_ns *= 2
        if len(self._counts) % 2:
            self._reserve(len(self._counts) + 1)
        self._counts = self._counts[0::2] + self._counts[1::2]
        self._first = np.minimum(self._first[0::2], self._first[1::2])
        self._last = np.maximum(self._last[0::2], self._last[1::2])
        self.used = -(-self.used // 2)
