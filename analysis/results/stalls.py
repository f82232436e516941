"""Whether a drive stalls at regular intervals, and for how long (docs/method.md, "Stalls")."""

from dataclasses import dataclass

import numpy as np

from .fine_bins import FineBins

FEWEST = 4
_MOST = 20_000  # of one level: as many tell the period as well as more
_STEP_DOWN = 0.8  # from one level of length to the next
_MUCH = 5  # a stall lasts at least so many times the mean time between completions
_SAME, _MORE = 0.02, 1.1
_NEAR = 0.15  # of the period: how far an interval may be off before it counts as another event's
_MOST_ODD = 0.2  # so many of the events may be none of the period's, and so many of the period's places be empty
_FEW = 8  # of fewer, none
# The fewer there are, the less may their intervals vary: some random events are even by chance now and then.
_EVENNESS = {4: 0.01, 5: 0.02, 6: 0.03, 7: 0.04}
_EVEN = 0.08
_DIP_IOS = 100
_DIP_PARTS = 10


@dataclass(frozen=True)
class Stalls:
    """count of them, every period_ns, of length_ns each (medians). complete: nothing at all completed meanwhile;
    otherwise the rate was under half of what it is at other times."""

    period_ns: int
    length_ns: int
    count: int
    complete: bool


def find(bins: FineBins) -> Stalls | None:
    """The periodic stall in which most time was lost; None where there is none.

    First among pauses, in which nothing completed; where those have no period, among dips to under half the rate.
    """
    ios = int(bins.counts.sum())
    if ios < FEWEST or bins.used < 2:
        return None
    begin, length = bins.pauses()
    mean_ns = bins.used * bins.width_ns / ios
    found = _longest_periodic(begin, length, max(2 * bins.width_ns, _MUCH * mean_ns))
    if found is not None:
        period_ns, lengths = found
        # The usual time between two completions is no part of a stall.
        usual_ns = max(0.0, (bins.used * bins.width_ns - lengths.sum()) / ios)
        return Stalls(round(period_ns), round(float(np.median(lengths)) - usual_ns), len(lengths), True)
    begin, length, width_ns = _dips(bins, ios)
    found = _longest_periodic(begin, length, width_ns)
    if found is not None and found[0] >= 10 * width_ns:
        return Stalls(round(found[0]), round(float(np.median(found[1]))), len(found[1]), False)
    return None


def _longest_periodic(begin, length, shortest):
    """(period, lengths) of the events longer than some level that come at even intervals; None without.

    Levels go down from the longest event. A lower one is taken only where it adds events of the same period, or a tenth
    to the time lost: it has more events to be wrong about.
    """
    best, best_lost = None, 0.0
    level = float(length.max()) * 0.9 if len(length) else 0.0
    while level >= shortest:
        events = np.flatnonzero(length > level)[-_MOST:]
        if len(events) >= FEWEST:
            found = period_of(begin[events])
            if found is not None:
                lengths = length[events[found[1]]]
                same = best is not None and abs(found[0] - best[0]) <= _SAME * best[0] and len(lengths) > len(best[1])
                if same or lengths.sum() > _MORE * best_lost:
                    best, best_lost = (found[0], lengths), float(lengths.sum())
        level *= _STEP_DOWN
    return best


def period_of(times: np.ndarray) -> tuple[float, np.ndarray] | None:
    """(period, which of the events keep it) of ascending times; None where they keep none.

    The period is the median interval, made exact by the mean of all even ones. Events are followed from one to the
    next: one that is no whole number of periods behind is not of them. Of eight and more, one in five may be odd, and
    one in five missing.
    """
    if len(times) < FEWEST:
        return None
    guess = float(np.median(np.diff(times)))
    if guess <= 0:
        return None
    wanted = 1 - _MOST_ODD if len(times) >= _FEW else 1
    for first in range(min(3, len(times) - FEWEST + 1)):
        kept, steps = _followed(times, first, guess)
        if len(kept) < FEWEST or len(kept) < wanted * max(len(times), sum(steps) + 1):
            continue
        intervals = np.diff(times[kept]) / np.array(steps)
        period = float(times[kept[-1]] - times[kept[0]]) / sum(steps)
        if np.sqrt(np.mean((intervals - period) ** 2)) <= _EVENNESS.get(len(kept), _EVEN) * period:
            return period, np.array(kept)
    return None


def _followed(times, first, period):
    kept, steps = [first], []
    last = float(times[first])
    for index in range(first + 1, len(times)):
        distance = float(times[index]) - last
        whole = round(distance / period)
        if whole >= 1 and abs(distance - whole * period) <= _NEAR * period:
            kept.append(index)
            steps.append(whole)
            last = float(times[index])
    return kept, steps


def _dips(bins, ios):
    """(begin, length, width) of the times at which the rate was under half of what a quarter of the bins of the same
    tenth of the run exceed; in bins wide enough for so many I/Os that chance makes no dip."""
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
