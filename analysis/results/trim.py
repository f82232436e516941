"""trim: what a discard costs whoever reads meanwhile, and how long a whole drive takes."""

from dataclasses import dataclass

import numpy as np

from blkreel.traces.schema import OPS

from ..metrics import SECOND_NS
from .directory import Runs, Test, arrays
from .parts import Content, over_repeats, series, table, with_spread
from .sensors import sensors_of
from .tally import COLUMNS, Tally, tally

EXTENTS, WHOLE = "extents", "whole"
GB = 10**9
_MOST_PAIRED = 2000


@dataclass(frozen=True)
class Measured:
    """One entry per discarded extent. added_ns: NaN where no background I/O met it."""

    sums: Tally
    bytes: np.ndarray
    took_ns: np.ndarray
    added_ns: np.ndarray
    median_ns: int | None
    background_ops: int


def _measure(step, trace):
    sums = Tally(sensors_of(step.directory))
    discards, background = [], []
    for columns in arrays(trace, [*COLUMNS, "due_ns"]):
        sums.feed({name: columns[name] for name in COLUMNS})
        seen = columns["latency_ns"] >= 0
        due_ns = np.where(columns["due_ns"] >= 0, columns["due_ns"], columns["submit_ns"])
        complete_ns = columns["submit_ns"] + columns["latency_ns"]
        is_discard = seen & (columns["op"] == OPS["discard"])
        others = seen & (columns["op"] < 2)
        discards.append(np.column_stack([columns["submit_ns"], complete_ns, columns["length_bytes"]])[is_discard])
        background.append(np.column_stack([due_ns, complete_ns])[others])
    submit_ns, complete_ns, length_bytes = np.concatenate([*discards, np.empty((0, 3), np.int64)]).T
    due_ns, done_ns = np.concatenate([*background, np.empty((0, 2), np.int64)]).T
    added_ns, median_ns = added_latency(submit_ns, complete_ns, due_ns, done_ns)
    return Measured(sums, length_bytes, complete_ns - submit_ns, added_ns, median_ns, len(due_ns))


def added_latency(submit_ns, complete_ns, due_ns, done_ns) -> tuple[np.ndarray, int | None]:
    """(by how much the slowest background I/O that met each discard exceeds the median, that median).

    A background I/O meets a discard where [due, done) overlaps [submit, complete) of it. The median, by nearest rank,
    is of the responses of those that met none. NaN for a discard that nothing met, or where every I/O met one.
    """
    order = np.argsort(due_ns, kind="stable")
    due_ns, done_ns = due_ns[order], done_ns[order]
    response_ns = done_ns - due_ns
    longest_ns = int(response_ns.max()) if len(response_ns) else 0
    met, slowest = np.zeros(len(due_ns), bool), np.full(len(submit_ns), np.nan)
    for index, (begin, end) in enumerate(zip(submit_ns.tolist(), complete_ns.tolist(), strict=True)):
        low, high = np.searchsorted(due_ns, [begin - longest_ns, end])
        mine = done_ns[low:high] > begin
        if mine.any():
            slowest[index] = response_ns[low:high][mine].max()
        met[low:high] |= mine
    alone = np.sort(response_ns[~met])
    if not len(alone):
        return np.full(len(submit_ns), np.nan), None
    median_ns = int(alone[-(-len(alone) // 2) - 1])
    return slowest - median_ns, median_ns


def slope(count_bytes: np.ndarray, duration_ns: np.ndarray) -> tuple[float, float] | None:
    """(s/GB, s at nothing) of the least-squares line through (bytes, ns); None of fewer than two sizes."""
    known = ~np.isnan(duration_ns)
    x, y = count_bytes[known] / GB, duration_ns[known] / SECOND_NS
    if len(np.unique(x)) < 2:
        return None
    distance = x - x.mean()
    found = float(distance @ y) / float(distance @ distance)
    return found, float(y.mean() - found * x.mean())


def median_slope(count_bytes: np.ndarray, duration_ns: np.ndarray) -> float | None:
    """Median of the slopes between all pairs of different sizes (Theil, Sen), in s/GB: odd extents do not move it."""
    known = ~np.isnan(duration_ns)
    x, y = count_bytes[known][:_MOST_PAIRED] / GB, duration_ns[known][:_MOST_PAIRED] / SECOND_NS
    first, second = np.triu_indices(len(x), 1)
    apart = x[first] != x[second]
    if not apart.any():
        return None
    first, second = first[apart], second[apart]
    return float(np.median((y[second] - y[first]) / (x[second] - x[first])))


def content(test: Test, runs: Runs) -> Content:
    """Role extents, labels state and repeat where there are any; role whole, labels state and before."""
    shown, rows, lines = Content(method=list(METHOD)), [], []
    for step, each in runs.measured(EXTENTS, _measure):
        sizes = _sizes(each)
        rows.append({**_slopes(step, each), "by_size": {str(row["bytes"]): {
            key: value for key, value in row.items() if key not in ("bytes", "why")} for row in sizes}})
        lines += _points(step, each)
        shown.tables.append(table(f"By size: {step.title}", _SIZES, sizes))
    whole = _by_contents(runs.measured(WHOLE, tally))
    wholes = [{"state": state, "bytes": own[0].others.bytes, "n": len(own),
               **over_repeats("s_per_gb", [_s_per_gb(each) for each in own]),
               **over_repeats("took_ns", [each.makespan_ns or None for each in own])} for state, own in whole.items()]
    shown.figures = {
        "extents": {_key(row): row for row in rows},
        "whole": {row["state"]: {key: value for key, value in row.items() if key != "state"} for row in wholes}}
    tables = [table("Added latency by discarded size", _SLOPES, rows)] if rows else []
    tables += [table("Discard of the whole drive", _WHOLE, wholes)] if wholes else []
    shown.tables = tables + shown.tables
    if lines:
        shown.series.append(series("Latency by size of the discarded extent", ("extent", "bytes"), ("Latency", "ns"),
                                   lines))
    return shown


def _by_contents(found):
    """What was measured of whole drives by what was on them: the state, and of a drive that had been discarded just
    before also which state that was, where there are several. Usable parts of different sizes are never one."""
    wholes = [(str(step.labels.get("state", "")), str(step.labels.get("before", "")), sums) for step, sums in found]
    before = {}
    for state, was, _ in wholes:
        before.setdefault(state, set()).add(was)
    groups = {}
    for state, was, sums in wholes:
        groups.setdefault(f"{state} after {was}" if len(before[state]) > 1 else state, []).append(sums)
    return groups


def _key(row):
    """A run's name in the figures: its state, and which repeat it is from the second on."""
    name = str(row["state"] or "run")
    return name if row["repeat"] == 1 else f"{name}-{row['repeat']}"


def _s_per_gb(sums):
    return sums.makespan_ns / sums.others.bytes if sums.others.bytes else None  # ns a byte are s a GB


def _slopes(step, each: Measured):
    added, own = slope(each.bytes, each.added_ns), slope(each.bytes, each.took_ns)
    met, sizes = int((~np.isnan(each.added_ns)).sum()), len(np.unique(each.bytes))
    why = {}
    if added is None:
        no_slope = "no background I/O met a discard" if not met else "fewer than two sizes met"
        why |= dict.fromkeys(("added_s_per_gb", "added_median_s_per_gb"), no_slope)
    if own is None:
        why |= dict.fromkeys(("own_s_per_gb", "own_median_s_per_gb"), "fewer than two sizes")
    return {"state": step.labels.get("state"), "repeat": step.repeat, "added_s_per_gb": added and added[0],
            "added_at_nothing_ns": added and added[1] * SECOND_NS,
            "added_median_s_per_gb": median_slope(each.bytes, each.added_ns), "own_s_per_gb": own and own[0],
            "own_at_nothing_ns": own and own[1] * SECOND_NS,
            "own_median_s_per_gb": median_slope(each.bytes, each.took_ns), "extents": len(each.bytes), "sizes": sizes,
            "met": met, "background_median_ns": each.median_ns, "background_ops": each.background_ops, "why": why}


def _sizes(each: Measured):
    rows = []
    for size in np.unique(each.bytes).tolist():
        mine = each.bytes == size
        added = each.added_ns[mine]
        added = added[~np.isnan(added)]
        rows.append({"bytes": size, "extents": int(mine.sum()), "met": len(added),
                     "added_ns": float(np.median(added)) if len(added) else None,
                     "added_max_ns": float(added.max()) if len(added) else None,
                     "took_ns": float(np.median(each.took_ns[mine])),
                     "why": {} if len(added) else dict.fromkeys(("added_ns", "added_max_ns"), "nothing met it")})
    return rows


def _points(step, each: Measured):
    order = np.argsort(each.bytes, kind="stable")
    added = [(int(size), float(value)) for size, value in zip(each.bytes[order], each.added_ns[order], strict=True)
             if not np.isnan(value)]
    return [(f"{step.title}: added to reads", [x for x, _ in added], [y for _, y in added]),
            (f"{step.title}: of the discard", each.bytes[order].tolist(), each.took_ns[order].tolist())]


_SLOPES = [("state", "State", ""), ("repeat", "Repeat", ""), ("added_s_per_gb", "Added to reads", "s/GB"),
           ("added_median_s_per_gb", "by medians", "s/GB"), ("own_s_per_gb", "Of the discard", "s/GB"),
           ("own_median_s_per_gb", "by medians", "s/GB"), ("extents", "Extents", ""), ("met", "Met by reads", ""),
           ("background_median_ns", "Reads undisturbed, median", "ns")]
_SIZES = [("bytes", "Extent", "bytes"), ("extents", "Extents", ""), ("met", "Met by reads", ""),
          ("added_ns", "Added to reads, median", "ns"), ("added_max_ns", "longest", "ns"),
          ("took_ns", "Discard took, median", "ns")]
_WHOLE = [("state", "State", ""), ("bytes", "Discarded", "bytes"),
          *with_spread([("s_per_gb", "Cost", "s/GB"), ("took_ns", "Took", "ns")]), ("n", "n", "")]

METHOD = [
    ("Added latency", "Of each discarded extent: the longest response (complete − due) of a background read that met "
     "it, less the median response of the reads that met no discard. A read meets a discard where [due, complete) of "
     "the one overlaps [submit, complete) of the other (D). Extents that no read met have no point: nobody was "
     "delayed."),
    ("Slope", "Least squares with a constant through one point per extent, (bytes, added latency), in s/GB; at least "
     "two sizes (D). Beside it the median of the slopes between all pairs of different sizes (Theil, Sen), which "
     "single odd extents do not move, and the same two of the discards' own latency."),
    ("Discard of the whole drive", "Makespan of all its discards, max(complete) − min(submit), by the bytes "
     "discarded."),
]
