"""Completions over time in fine bins: where nothing completed for a while, to the nanosecond, in bounded memory."""

import numpy as np

FIRST_WIDTH_NS = 1_000_000
MAX_BINS = 1 << 22  # over an hour of milliseconds
_LATE = np.iinfo(np.int64).max


class FineBins:
    """Fed times of completion in any order. Bins are 1 ms wide until MAX_BINS are needed; then they double.

    Of each bin its first and last completion are kept: a pause longer than a bin crosses its border, and so both of
    its ends are known.
    """

    def __init__(self, origin_ns: int):
        self.origin_ns = origin_ns
        self.width_ns = FIRST_WIDTH_NS
        self._counts = np.zeros(1024, np.int64)
        self._first = np.full(1024, _LATE)
        self._last = np.full(1024, -1, np.int64)
        self.used = 0

    def add(self, complete_ns: np.ndarray) -> None:
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
    def counts(self) -> np.ndarray:
        return self._counts[:self.used]

    def grouped(self, width_ns: int) -> np.ndarray:
        """Counts in whole bins of about width_ns: as many fine bins as come next to it, at least one."""
        together = max(1, round(width_ns / self.width_ns))
        whole = self.used // together * together
        return self.counts[:whole].reshape(-1, together).sum(axis=1)

    def pauses(self) -> tuple[np.ndarray, np.ndarray]:
        """(begin, length) in ns from the origin, of the times between two successive completions that lie in
        different bins: every pause longer than a bin is among them."""
        filled = np.flatnonzero(self.counts)
        begin = self._last[filled[:-1]]
        return begin, self._first[filled[1:]] - begin

    def _reserve(self, bins):
        if bins > len(self._counts):
            room = max(bins, min(2 * len(self._counts), MAX_BINS)) - len(self._counts)
            self._counts = np.pad(self._counts, (0, room))
            self._first = np.pad(self._first, (0, room), constant_values=_LATE)
            self._last = np.pad(self._last, (0, room), constant_values=-1)
        self.used = max(self.used, bins)

    def _coarsen(self):
        self.width_ns *= 2
        if len(self._counts) % 2:
            self._reserve(len(self._counts) + 1)
        self._counts = self._counts[0::2] + self._counts[1::2]
        self._first = np.minimum(self._first[0::2], self._first[1::2])
        self._last = np.maximum(self._last[0::2], self._last[1::2])
        self.used = -(-self.used // 2)
