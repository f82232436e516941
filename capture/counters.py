"""What drives do, by the kernel's own counters: for who watches a source that tells no latencies while it records."""

import time
from pathlib import Path

from blkreel.traces.live import Counts, Interval

# Of each kind: where the file has its I/Os, sectors of 512 bytes and ms. Flushes have no sectors.
_FIELDS = {"read": (0, 2, 3), "write": (4, 6, 7), "discard": (11, 13, 14), "flush": (15, None, 16)}
_IN_FLIGHT = 8
_SECTOR_BYTES = 512


class Counters:
    """Intervals as the capture helper gives them, of less: no percentiles, no threads, and latencies of whole ms.

    The kernel counts what completes; a sum of latencies is as exact as its ms are, so a mean of many is.
    files: `/sys/block/NAME/stat` of each drive. limits: what each interval says of itself.
    """

    def __init__(self, files: list[Path], interval_ns: int, limits: str = "", clock_ns=time.monotonic_ns):
        self._files, self._limits = files, limits
        self._interval_ns, self._clock_ns = interval_ns, clock_ns
        self._began_ns = self._begin_ns = clock_ns()
        self._before = [_read(file) for file in self._files]

    def intervals(self, lost: int | None, *, last: bool = False) -> list[Interval]:
        """One where it is time for one, or the last; else none. lost: what the source lost so far, None if unknown."""
        now_ns = self._clock_ns()
        if now_ns - self._begin_ns < self._interval_ns and not last:
            return []
        now = [_read(file) for file in self._files]
        classes = {}
        for number, (before, after) in enumerate(zip(self._before, now, strict=True)):
            if before is None or after is None:
                continue  # it is gone, or has come back: another drive
            for op, (ios, sectors, ms) in _FIELDS.items():
                count = _gone_up(before, after, ios)
                if count:
                    classes[number, op] = Counts(
                        ops=count, bytes=_gone_up(before, after, sectors) * _SECTOR_BYTES,
                        latency_ns=_gone_up(before, after, ms) * 1_000_000)
        in_flight = [None if after is None else after[_IN_FLIGHT] for after in now]
        found = Interval(self._begin_ns - self._began_ns, now_ns - self._began_ns, classes, in_flight, lost,
                         limits=self._limits)
        self._before, self._begin_ns = now, now_ns
        return [found]


def _read(file):
    try:
        return [int(field) for field in file.read_text().split()]
    except OSError:
        return None


def _gone_up(before, after, at):
    """0 where a kernel does not count that."""
    return max(0, after[at] - before[at]) if at is not None and at < min(len(before), len(after)) else 0
