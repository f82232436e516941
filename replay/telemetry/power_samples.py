"""Power that another program or another machine has measured: its times brought onto the run's clock."""

from dataclasses import dataclass, field

import numpy as np

from blkreel.traces.errors import BlkreelError

from .series import gaps_of, in_order

UNIX_SINCE_S = 1e9  # 2001; no other clock has run for 31 years


@dataclass
class PowerSamples:
    """time_ns: on CLOCK_MONOTONIC, in order. gaps: longer than five median intervals. notes: what was wrong."""

    time_ns: np.ndarray
    watts: np.ndarray
    gaps: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def rate_hz(self) -> float | None:
        """Of the median interval."""
        if len(self.time_ns) < 2:
            return None
        return round(1e9 / float(np.median(np.diff(self.time_ns))), 3)

    def during(self, begin_ns: int, end_ns: int) -> "PowerSamples":
        """Those around a run. Raises BlkreelError where there are none in it."""
        time_ns = self.time_ns
        inside = (time_ns >= begin_ns) & (time_ns <= end_ns)
        if not inside.any() and not (len(time_ns) and time_ns[0] < begin_ns and time_ns[-1] > end_ns):
            first, last = (time_ns[0] - begin_ns) / 1e9, (time_ns[-1] - begin_ns) / 1e9
            raise BlkreelError(f"the power log goes from {first:,.1f} s to {last:,.1f} s after the run's start, but "
                               f"the run took {(end_ns - begin_ns) / 1e9:,.1f} s: they do not overlap",
                               "say how far its clock is off, behind the file's name: FILE,offset=SECONDS")
        # One more at each end, for the curve to begin and to end with.
        first = max(int(np.searchsorted(time_ns, begin_ns)) - 1, 0)
        last = min(int(np.searchsorted(time_ns, end_ns, "right")) + 1, len(time_ns))
        gaps = [gap for gap in self.gaps if gap[0] < end_ns and gap[1] > begin_ns]
        return PowerSamples(time_ns[first:last], self.watts[first:last], gaps, self.notes)


def is_unix(seconds: float) -> bool:
    """Whether a time in seconds is one since 1970, and not one since a program's start."""
    return seconds >= UNIX_SINCE_S


def tidied(time_ns, watts, notes=()) -> PowerSamples:
    """Samples as they should have come. How many had to be put in order, or stood twice, becomes a note."""
    time_ns, watts = np.asarray(time_ns, np.int64), np.asarray(watts, np.float64)
    if len(watts) and watts.mean() < 0:
        raise BlkreelError(f"its samples are {watts.mean():.3g} W on average, which no drive takes",
                           "turn the meter's wires round, or name another column")
    time_ns, watts, early, twice = in_order(time_ns, watts)
    notes = list(notes)
    if early:
        notes.append(f"out of order {early:,} times: sorted")
    if twice:
        notes.append(f"several samples at one time, {twice:,} in all: the last one of each counts")
    gaps = gaps_of(time_ns)
    return PowerSamples(time_ns, watts, gaps, notes)


@dataclass(frozen=True)
class ClockPairs:
    """Readings of both clocks taken together, at both ends of a run: (monotonic_ns, realtime_ns)."""

    first: tuple[int, int]
    last: tuple[int, int]

    def monotonic_ns(self, realtime_ns: np.ndarray) -> np.ndarray:
        """The wall clock may be slewed meanwhile; between the two pairs that is shared out evenly.

        A clock that was set by hand, and not slewed, can't be followed: only the first pair counts then.
        """
        since = np.asarray(realtime_ns, np.int64) - self.first[1]
        monotonic, real = self.last[0] - self.first[0], self.last[1] - self.first[1]
        if monotonic <= 0 or abs(real - monotonic) > monotonic * 1e-3:
            return self.first[0] + since
        return self.first[0] + np.round(since * (monotonic / real)).astype(np.int64)
