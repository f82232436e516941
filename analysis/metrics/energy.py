"""Energy from the samples of a power meter, over the time in which a drive was active (docs/method.md, "Tests")."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LONGEST_STEP = 3  # samples further apart than so many sampling intervals have a gap between them
ENOUGH = 10
SECOND_NS = 10**9


@dataclass(frozen=True)
class Energy:
    """Energy used in covered_ns of active_ns; the rest of the time lies in gaps of the meter."""

    joules: float
    covered_ns: int
    active_ns: int

    @property
    def average_w(self) -> float | None:
        return self.joules * SECOND_NS / self.covered_ns if self.covered_ns else None


class Power:
    """The samples of one meter: watts at time_ns, ascending. Power between two samples is linear.

    Time is covered between samples that are at most LONGEST_STEP sampling intervals apart, outside of gaps_ns, and for
    one interval before the first and after the last sample, whose power is constant there. interval_ns: the configured
    interval; the median distance of ENOUGH samples or more replaces it if longer. Raises ValueError for samples out of
    order.
    """

    def __init__(self, time_ns: npt.ArrayLike, watts: npt.ArrayLike, interval_ns: int | None = None,
                 gaps_ns: Iterable[tuple[int, int]] = ()) -> None:
        times_ns, power_w = np.asarray(time_ns, np.int64), np.asarray(watts, float)
        is_finite = np.isfinite(power_w)
        times_ns, power_w = times_ns[is_finite], power_w[is_finite]
        steps = np.diff(times_ns)
        if (steps < 0).any():
            raise ValueError("samples of power are not in the order of their times")
        self.samples = len(times_ns)
        median_ns = int(np.median(steps)) if len(steps) else 0
        self.interval_ns = interval_ns or median_ns
        if len(steps) >= ENOUGH:
            self.interval_ns = max(self.interval_ns, median_ns)
        if not self.samples:
            self._begin = self._end = np.empty(0, np.int64)
            self._watts_begin = self._watts_end = np.empty(0)
            return
        edge = self.interval_ns
        begin = np.concatenate([[times_ns[0] - edge], times_ns])
        end = np.concatenate([times_ns, [times_ns[-1] + edge]])
        keep = end - begin <= LONGEST_STEP * max(1, self.interval_ns)
        for gap_begin, gap_end in gaps_ns:
            keep &= (end <= gap_begin) | (begin >= gap_end)
        self._begin, self._end = begin[keep], end[keep]
        self._watts_begin = np.concatenate([power_w[:1], power_w])[keep]
        self._watts_end = np.concatenate([power_w, power_w[-1:]])[keep]

    def over(self, begin_ns: int, end_ns: int) -> Energy:
        """The integral of power from begin_ns to end_ns, where it is covered."""
        low, high = np.maximum(self._begin, begin_ns), np.minimum(self._end, end_ns)
        inside = high > low
        low, high = low[inside], high[inside]
        begin, length = self._begin[inside], (self._end - self._begin)[inside]
        watts, change = self._watts_begin[inside], (self._watts_end - self._watts_begin)[inside]
        middle = ((low - begin) + (high - begin)) / 2 / length  # of a straight line, the mean is its middle
        joules = float(((watts + change * middle) * (high - low)).sum()) / SECOND_NS
        return Energy(joules, int((high - low).sum()), max(0, end_ns - begin_ns))

    def covers(self, time_ns: np.ndarray) -> np.ndarray:
        """True where a time is covered: what completed in a gap of the meter does not count as work for its joules."""
        if not len(self._begin):
            return np.zeros(len(time_ns), bool)
        piece = np.searchsorted(self._begin, time_ns, "right") - 1
        # The end counts as covered: the completion there belongs to the piece.
        return (piece >= 0) & (time_ns <= self._end[np.maximum(piece, 0)])


def mb_per_joule(count_bytes: int, joules: float | None) -> float | None:
    """Power efficiency: MB/J, which is MB/s/W."""
    return count_bytes / 1e6 / joules if joules else None
