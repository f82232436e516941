"""A sensor's values as a curve: where it has gaps, and what is under it."""

import numpy as np

GAP_INTERVALS = 5.0  # a gap is longer than this many median intervals (D)

Gaps = list[tuple[int, int]]


def gaps_of(time_ns: np.ndarray, intervals: float = GAP_INTERVALS) -> Gaps:
    """(from_ns, to_ns) of the stretches between neighbours that are too far apart. time_ns: in order."""
    if len(time_ns) < 3:
        return []
    apart = np.diff(time_ns)
    where = np.flatnonzero(apart > intervals * np.median(apart))
    return [(int(time_ns[at]), int(time_ns[at + 1])) for at in where]


def integral(time_ns: np.ndarray, value: np.ndarray, begin_ns: int, end_ns: int, gaps: Gaps = ()) -> tuple[float, int]:
    """What lies under the curve between two times, in value times seconds, and how many ns of it were measured.

    Trapezoids between neighbouring samples, cut at both times; what lies in a gap, before the first sample or
    behind the last one is not measured, and is neither in the sum nor in the length.
    """
    if len(time_ns) < 2:
        return 0.0, 0
    time, value = np.asarray(time_ns, np.float64), np.asarray(value, np.float64)
    cuts = np.clip([begin_ns, end_ns, *(edge for gap in gaps for edge in gap)], time[0], time[-1])
    # Cut into pieces that lie wholly inside or outside, each a trapezoid of the same line as before.
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
    """Sorted by time, of several samples at one time the last. Also how many had come too early, and twice."""
    late = int(np.count_nonzero(np.diff(time_ns) < 0))
    order = np.argsort(time_ns, kind="stable")
    time_ns, value = time_ns[order], value[order]
    last = np.append(np.diff(time_ns) > 0, True) if len(time_ns) else np.empty(0, bool)
    return time_ns[last], value[last], late, len(time_ns) - int(last.sum())
