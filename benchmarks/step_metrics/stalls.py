"""Periodic stalls of a drive (docs/method.md, "Stalls")."""

from dataclasses import dataclass

import numpy as np

from blkreel.benchmarks.step_metrics import Array

from .fine_bins import FineBins

MIN_EVENTS = 4
_MAX_EVENTS = 20_000  # of one level, which is enough for its period
_LEVEL_FACTOR = 0.8  # from one level of length to the next
_MIN_LENGTH = 5  # of a stall, in mean times between completions
_SAME_PERIOD, _MORE_LOST = 0.02, 1.1
_MAX_OFFSET = 0.15  # of an event from a multiple of the period, in periods
_MAX_OUTLIERS = 0.2  # share of irregular events, and of missing ones; none of fewer events than
_MIN_FOR_OUTLIERS = 8
# Maximum variation of the intervals, by number of events: few random events are sometimes regular by chance.
_MAX_VARIATION = {4: 0.01, 5: 0.02, 6: 0.03, 7: 0.04}
_MAX_VARIATION_OF_MANY = 0.08
_DIP_IOS = 100
_DIP_PARTS = 10


@dataclass(frozen=True)
class Stalls:
    """period_ns: mean interval. length_ns: median. complete: no I/O completed meanwhile; otherwise the rate was below
    half of the usual rate."""

    period_ns: int
    length_ns: int
    count: int
    complete: bool


def find(bins: FineBins) -> Stalls | None:
    """The periodic stalls with the most lost time; None without any. Pauses, or if these have no period, dips of the
    rate below half."""
    ios = int(bins.counts.sum())
    if ios < MIN_EVENTS or bins.used < 2:
        return None
    begin, length = bins.pauses()
    mean_ns = bins.used * bins.width_ns / ios
    periodic = _longest_periodic(begin, length, max(2 * bins.width_ns, _MIN_LENGTH * mean_ns))
    if periodic is not None:
        period_ns, lengths = periodic
        # Excludes the usual time between two completions.
        usual_ns = max(0.0, (bins.used * bins.width_ns - lengths.sum()) / ios)
        return Stalls(round(period_ns), round(float(np.median(lengths)) - usual_ns), len(lengths), True)
    begin, length, width_ns = _dips(bins, ios)
    periodic = _longest_periodic(begin, length, width_ns)
    if periodic is not None and periodic[0] >= 10 * width_ns:
        period_ns, lengths = periodic
        return Stalls(round(period_ns), round(float(np.median(lengths))), len(lengths), False)
    return None


def _longest_periodic(begin: Array, length: Array, shortest: float) -> tuple[float, Array] | None:
    """(period, lengths) of the events longer than some level that come at regular intervals; None without any.

    Levels descend from the longest event. A lower level must add events of the same period, or a tenth to the lost
    time.
    """
    best: tuple[float, Array] | None = None
    best_lost = 0.0
    level = float(length.max()) * 0.9 if len(length) else 0.0
    while level >= shortest:
        events = np.flatnonzero(length > level)[-_MAX_EVENTS:]
        if len(events) >= MIN_EVENTS:
            periodic = period_of(begin[events])
            if periodic is not None:
                period, indices = periodic
                lengths = length[events[indices]]
                same = (best is not None and abs(period - best[0]) <= _SAME_PERIOD * best[0]
                        and len(lengths) > len(best[1]))
                if same or lengths.sum() > _MORE_LOST * best_lost:
                    best, best_lost = (period, lengths), float(lengths.sum())
        level *= _LEVEL_FACTOR
    return best


def period_of(times: Array) -> tuple[float, Array] | None:
    """(period, indices of the periodic events) of ascending times; None without a period.

    The period is the median interval, refined by the mean of all regular intervals. An event is periodic if it comes a
    whole number of periods after the one before. Of eight or more, one in five may be irregular, and one in five
    missing.
    """
    if len(times) < MIN_EVENTS:
        return None
    guess = float(np.median(np.diff(times)))
    if guess <= 0:
        return None
    min_share = 1 - _MAX_OUTLIERS if len(times) >= _MIN_FOR_OUTLIERS else 1
    for first in range(min(3, len(times) - MIN_EVENTS + 1)):
        periodic, steps = _followed(times, first, guess)
        if len(periodic) < MIN_EVENTS or len(periodic) < min_share * max(len(times), sum(steps) + 1):
            continue
        intervals = np.diff(times[periodic]) / np.array(steps)
        period = float(times[periodic[-1]] - times[periodic[0]]) / sum(steps)
        max_variation = _MAX_VARIATION.get(len(periodic), _MAX_VARIATION_OF_MANY)
        if np.sqrt(np.mean((intervals - period) ** 2)) <= max_variation * period:
            return period, np.array(periodic)
    return None


def _followed(times: Array, first: int, period: float) -> tuple[list[int], list[int]]:
    periodic = [first]
    steps: list[int] = []
    last = float(times[first])
    for index in range(first + 1, len(times)):
        distance = float(times[index]) - last
        whole = round(distance / period)
        if whole >= 1 and abs(distance - whole * period) <= _MAX_OFFSET * period:
            periodic.append(index)
            steps.append(whole)
            last = float(times[index])
    return periodic, steps


def _dips(bins: FineBins, ios: int) -> tuple[Array, Array, int]:
    """(begin, length, width) of the times with a rate below half of the upper quartile of the same tenth of the run, in
    bins wide enough for _DIP_IOS I/Os."""
    width_ns = max(1, -(-_DIP_IOS * bins.used // ios)) * bins.width_ns
    counts = bins.grouped(width_ns)
    if len(counts) < 4 * _DIP_PARTS:
        return np.empty(0, np.int64), np.empty(0, np.int64), width_ns
    around = np.concatenate([np.full(len(part), np.quantile(part, 0.75, method="nearest"))
                             for part in np.array_split(counts, _DIP_PARTS)])
    low = np.concatenate([[False], 2 * counts < around, [False]])
    edges = np.flatnonzero(np.diff(low.astype(np.int8)))
    begin, end = edges[0::2], edges[1::2]
    return begin * width_ns, (end - begin) * width_ns, width_ns
