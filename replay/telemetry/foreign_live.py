"""I/O of others on a drive while a run goes on: the kernel's counts against what had been issued here by then."""

import threading

import numpy as np

from ..foreign import DiskCount, foreign_ios

_BIN_NS = 50_000_000
# By so much may a completion be counted by the kernel before it is stamped here (held up at most, docs/replay.md).
_AHEAD_NS = 100_000_000
_COLUMNS = 4  # read I/Os, read bytes, write I/Os, write bytes


class ForeignLive:
    """Of one drive. The kernel's counts come at their times, our completions when their records do, later."""

    def __init__(self):
        self._lock = threading.Lock()
        self._ours = np.zeros((_COLUMNS, 1024), np.int64)
        self._times_ns: list[int] = []
        self._counts: list[DiskCount] = []

    def counted(self, monotonic_ns: int, count: DiskCount) -> None:
        with self._lock:
            self._times_ns.append(monotonic_ns)
            self._counts.append(count)

    def take(self, rows: dict[str, np.ndarray], reads: np.ndarray, writes: np.ndarray) -> None:
        """Records of this drive. reads, writes: which of them are."""
        at = np.maximum(np.maximum(rows["complete_ns"], rows["submit_ns"]), 0) // _BIN_NS
        length = rows["length_bytes"]
        with self._lock:
            self._reach(int(at.max(initial=0)))
            for first, chosen in ((0, reads), (2, writes)):
                size = self._ours.shape[1]
                self._ours[first] += np.bincount(at[chosen], minlength=size)
                self._ours[first + 1] += np.bincount(at[chosen], length[chosen], minlength=size).astype(np.int64)

    def series(self, start_ns: int) -> tuple[np.ndarray, np.ndarray]:
        """CLOCK_MONOTONIC in ns, and how many I/Os by then were surely not ours; never less than before."""
        with self._lock:
            times_ns = np.array(self._times_ns, np.int64)
            counts, ours = list(self._counts), np.cumsum(self._ours, axis=1)
        found = np.zeros(len(times_ns))
        for index, (time_ns, count) in enumerate(zip(times_ns.tolist(), counts, strict=True)):
            by = min((time_ns - start_ns + _AHEAD_NS) // _BIN_NS, ours.shape[1] - 1)
            issued = ours[:, by] if by >= 0 else np.zeros(_COLUMNS, np.int64)
            found[index] = foreign_ios(counts[0], count, read_ios=int(issued[0]), read_bytes=int(issued[1]),
                                       write_ios=int(issued[2]), write_bytes=int(issued[3]))
        # The last count was taken when all was over, and none of ours can be missing in it.
        return times_ns, np.maximum.accumulate(np.minimum(found, found[-1])) if len(found) else found

    def _reach(self, last):
        size = self._ours.shape[1]
        if last >= size:
            grown = np.zeros((_COLUMNS, max(last + 1, 2 * size)), np.int64)
            grown[:, :size] = self._ours
            self._ours = grown
