"""Live intervals from the kernel's counters of each drive, for sources that report no latencies while they record."""

import time
from collections.abc import Callable
from pathlib import Path

from blkreel.traces.live import Counts, Interval

# Of each kind: the positions of its I/Os, sectors of 512 bytes and ms. Flushes have no sectors.
_FIELDS = {"read": (0, 2, 3), "write": (4, 6, 7), "discard": (11, 13, 14), "flush": (15, None, 16)}
IN_FLIGHT = 8
_SECTOR_BYTES = 512


class Counters:
    """Intervals like those of the capture helper, without percentiles and threads, and with latencies in whole ms.

    files: `/sys/block/NAME/stat` of each drive. limits: a text about this, which each interval carries.
    """

    def __init__(self, files: list[Path], interval_ns: int, limits: str = "",
                 clock_ns: Callable[[], int] = time.monotonic_ns):
        self._files, self._limits = files, limits
        self._interval_ns, self._clock_ns = interval_ns, clock_ns
        self._began_ns = self._begin_ns = clock_ns()
        self._before = [read_stat(file) for file in self._files]

    def intervals(self, lost: int | None, *, last: bool = False) -> list[Interval]:
        """The interval, where it has passed or is the last, else none. lost: by the source so far, None if unknown."""
        now_ns = self._clock_ns()
        if now_ns - self._begin_ns < self._interval_ns and not last:
            return []
        now = [read_stat(file) for file in self._files]
        classes = {}
        for number, (before, after) in enumerate(zip(self._before, now, strict=True)):
            if before is None or after is None:
                continue  # the drive is gone, or another one has its name now
            for op, (ios, sectors, ms) in _FIELDS.items():
                count = _increase(before, after, ios)
                if count:
                    classes[number, op] = Counts(
                        ops=count, bytes=_increase(before, after, sectors) * _SECTOR_BYTES,
                        latency_ns=_increase(before, after, ms) * 1_000_000)
        in_flight = [None if after is None else after[IN_FLIGHT] for after in now]
        interval = Interval(self._begin_ns - self._began_ns, now_ns - self._began_ns, classes, in_flight, lost,
                            limits=self._limits)
        self._before, self._begin_ns = now, now_ns
        return [interval]


def read_stat(file: Path) -> list[int] | None:
    """The counters of `/sys/block/NAME/stat`; None if the drive is gone."""
    try:
        return [int(field) for field in file.read_text().split()]
    except OSError:
        return None


def completed_ios(stat: list[int]) -> dict[str, int]:
    """I/Os of each kind since boot; 0 of a kind that the kernel does not count."""
    return {op: stat[ios] if ios < len(stat) else 0 for op, (ios, _, _) in _FIELDS.items()}


def _increase(before: list[int], after: list[int], at: int | None) -> int:
    """0 if the kernel has no such counter."""
    return max(0, after[at] - before[at]) if at is not None and at < min(len(before), len(after)) else 0
