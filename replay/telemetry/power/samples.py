"""Samples of a power meter: their times on the clock of the run, their gaps, the energy below their curve."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from blkreel.common.errors import BlkreelError
from blkreel.common.units import counted, format_ns

UNIX_SINCE_S = 1e9  # 2001; no uptime is that long (31 years)
GAP_INTERVALS = 5.0  # a gap is longer than this many median intervals (D)
_LEAST_STEP_NS = 1_000_000  # of a clock that was set, to be noted

Gaps = list[tuple[int, int]]


def gaps_of(time_ns: np.ndarray, intervals: float = GAP_INTERVALS) -> Gaps:
    """(from_ns, to_ns) between neighbors that are further apart than so many median intervals. time_ns: ascending."""
    if len(time_ns) < 3:
        return []
    distance_ns = np.diff(time_ns)
    indices = np.flatnonzero(distance_ns > intervals * np.median(distance_ns))
    return [(int(time_ns[index]), int(time_ns[index + 1])) for index in indices]


def integral(time_ns: np.ndarray, value: np.ndarray, begin_ns: int, end_ns: int,
             gaps: Sequence[Sequence[int]] = ()) -> tuple[float, int]:
    """The area below the curve between two times, in value times seconds, and the measured time in ns.

    Sum of trapezoids between neighboring samples, cut at both times. Gaps, the time before the first sample and the
    time after the last one count neither as area nor as time.
    """
    if len(time_ns) < 2:
        return 0.0, 0
    time, value = np.asarray(time_ns, np.float64), np.asarray(value, np.float64)
    cuts = np.clip([begin_ns, end_ns, *(edge for gap in gaps for edge in gap)], time[0], time[-1])
    # Each piece between two cuts is wholly inside or wholly outside, and a trapezoid below the same line as before.
    cuts = cuts[~np.isin(cuts, time)]
    at = np.concatenate([time, cuts])
    order = np.argsort(at, kind="stable")
    values = np.concatenate([value, np.interp(cuts, time, value)])[order]
    at = at[order]
    width = np.diff(at)
    middle = (at[1:] + at[:-1]) / 2
    counts = (middle > begin_ns) & (middle < end_ns)
    for gap_begin, gap_end in gaps:
        counts &= ~((middle > gap_begin) & (middle < gap_end))
    area = (values[1:] + values[:-1]) / 2 * width
    return float(area[counts].sum()) / 1e9, int(round(width[counts].sum()))


def in_order(time_ns: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Sorted by time; of several samples with one time the last. Also the number out of order, and of duplicates."""
    early = int(np.count_nonzero(np.diff(time_ns) < 0))
    order = np.argsort(time_ns, kind="stable")
    time_ns, value = time_ns[order], value[order]
    last = np.append(np.diff(time_ns) > 0, True) if len(time_ns) else np.empty(0, bool)
    return time_ns[last], value[last], early, len(time_ns) - int(last.sum())


@dataclass
class PowerSamples:
    """time_ns: on CLOCK_MONOTONIC, ascending. gaps: see gaps_of(). notes: what was wrong with the data."""

    time_ns: np.ndarray
    watts: np.ndarray
    gaps: Gaps = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def rate_hz(self) -> float | None:
        """Of the median interval."""
        if len(self.time_ns) < 2:
            return None
        return round(1e9 / float(np.median(np.diff(self.time_ns))), 3)

    def during(self, begin_ns: int, end_ns: int) -> "PowerSamples":
        """The samples of a run. Raises BlkreelError if no sample is within it."""
        time_ns = self.time_ns
        inside = (time_ns >= begin_ns) & (time_ns <= end_ns)
        if not inside.any() and not (len(time_ns) and time_ns[0] < begin_ns and time_ns[-1] > end_ns):
            first_s, last_s = (time_ns[0] - begin_ns) / 1e9, (time_ns[-1] - begin_ns) / 1e9
            raise BlkreelError(f"the power log and the run do not overlap: the log is from {first_s:,.1f} s to "
                               f"{last_s:,.1f} s after the start of the run, which took "
                               f"{(end_ns - begin_ns) / 1e9:,.1f} s",
                               "correct the log's clock with FILE,offset=SECONDS")
        # One more sample at each end, so that the curve covers both ends of the run.
        first = max(int(np.searchsorted(time_ns, begin_ns)) - 1, 0)
        last = min(int(np.searchsorted(time_ns, end_ns, "right")) + 1, len(time_ns))
        gaps = [gap for gap in self.gaps if gap[0] < end_ns and gap[1] > begin_ns]
        return PowerSamples(time_ns[first:last], self.watts[first:last], gaps, self.notes)


def cleaned(time_ns: npt.ArrayLike, watts: npt.ArrayLike, notes: Sequence[str] = ()) -> PowerSamples:
    """Samples in order and without duplicates; the numbers of both become notes. Raises BlkreelError."""
    time_ns, watts = np.asarray(time_ns, np.int64), np.asarray(watts, np.float64)
    if len(watts) and watts.mean() < 0:
        raise BlkreelError(f"average power {watts.mean():.3g} W is negative", "swap the meter's wires, or select "
                           "another column: --power-log FILE,columns=TIME:WATTS")
    time_ns, watts, early, duplicates = in_order(time_ns, watts)
    notes = list(notes)
    if early:
        notes.append(f"{counted(early, 'sample')} out of order, sorted")
    if duplicates:
        notes.append(f"{counted(duplicates, 'sample')} at one time with another; the last of each counts")
    return PowerSamples(time_ns, watts, gaps_of(time_ns), notes)


@dataclass(frozen=True)
class ClockPairs:
    """Readings of both clocks taken together, at both ends of a run: (monotonic_ns, realtime_ns)."""

    first: tuple[int, int]
    last: tuple[int, int]

    def monotonic_ns(self, realtime_ns: np.ndarray) -> np.ndarray:
        """Linear between the two pairs, because the wall clock may be slewed during the run.

        If the wall clock was set instead, only the first pair counts.
        """
        since = np.asarray(realtime_ns, np.int64) - self.first[1]
        if self.was_set:
            return self.first[0] + since
        monotonic, real = self.last[0] - self.first[0], self.last[1] - self.first[1]
        return self.first[0] + np.round(since * (monotonic / real)).astype(np.int64)

    @property
    def was_set(self) -> bool:
        monotonic_ns = self.last[0] - self.first[0]
        return monotonic_ns <= 0 or abs(self._apart_ns) > monotonic_ns * 1e-3

    @property
    def notes(self) -> list[str]:
        """What a meter's times since 1970 are uncertain by."""
        if not self.was_set or abs(self._apart_ns) < _LEAST_STEP_NS:
            return []
        return [f"the wall clock was set {'back' if self._apart_ns < 0 else 'ahead'} by "
                f"{format_ns(abs(self._apart_ns))} during the run: from then on, times of a meter on this clock are "
                "off by as much"]

    @property
    def _apart_ns(self) -> int:
        return self.last[1] - self.first[1] - (self.last[0] - self.first[0])
