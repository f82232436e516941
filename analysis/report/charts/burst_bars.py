"""Bursts of each drive over each other: a bar from start to end at its own rate, idle time folded."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Axis, Point, Spec
from blkreel.analysis.metrics.partials.bursts import BurstTable
from blkreel.analysis.report.document import Entry
from blkreel.common import units

_MOST = 24  # bursts of one drive
_MOST_TICKS = 12  # inside of bursts
_GAP = 0.02  # share of the drawn time between two bursts
_LABEL = 0.05  # share of the width that a label of the axis takes
_SAME_OPS = 0.01  # the drives' numbers of I/Os in a burst differ by at most this share

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Drawn:
    """The same bursts of several drives. start_ns: since the first I/O of the first drive. duration_ns, ops, moved:
    (drives, bursts); moved in bytes. of: number of bursts of which these are the longest."""

    start_ns: Numbers
    duration_ns: Numbers
    ops: Numbers
    moved: Numbers
    of: int

    @property
    def rate_mb_s(self) -> npt.NDArray[np.float64]:
        rate: npt.NDArray[np.float64] = self.moved * 1000 / self.duration_ns
        return rate


def burst_bars(entries: Sequence[Entry], id_: str, order: Sequence[str]) -> Chart | None:
    """entries: of a report.document.Section; each is drawn by its first run. None without two bursts of reads or of
    writes, and for drives whose bursts are not the same, as with dependent timing."""
    for op in ("read", "write"):
        drawn = _same_bursts([_bursts_of(entry, op) for entry in entries], entries[0])
        if drawn is not None:
            break
    else:
        return None
    count = len(drawn.start_ns)
    notes: tuple[str, ...] = () if drawn.of == count else (f"The {count} longest of {drawn.of:,} bursts.",)
    if any(entry.document["n"] > 1 for entry in entries):
        notes += ("With several runs of a drive, the first run is drawn.",)
    is_run = entries[0].measured[0].is_run
    text = (f"Each burst of {op}s is a bar from {'its due time' if is_run else 'its first submit'} to its last "
            "completion; its height is bytes / duration, so a faster drive has a taller and shorter bar.")
    return Chart(id_, f"Bursts of {op}s", _table(entries, drawn, op), _spec(entries, drawn, op, order), "", text, notes,
                 wide=True)


def _bursts_of(entry: Entry, op: str) -> BurstTable:
    """The planned bursts of a run, which are the same on each drive; the bursts of a captured trace."""
    measured = entry.measured[0]
    part = measured.partial.classes()[op]
    return part.planned if measured.is_run else part.bursts


def _same_bursts(tables: Sequence[BurstTable], first: Entry) -> _Drawn | None:
    counts = {len(table) for table in tables}
    if len(counts) > 1 or max(counts) < 2:
        return None
    ops = np.array([table.ops for table in tables])
    if (np.ptp(ops, axis=0) > _SAME_OPS * ops.max(axis=0)).any():
        return None
    durations = np.array([table.end_ns - table.start_ns for table in tables])
    is_burst = ~tables[0].strays & (durations > 0).all(axis=0)
    if is_burst.sum() < 2:
        return None
    longest = np.argsort(np.where(is_burst, -durations.max(axis=0), 1), kind="stable")[:min(_MOST, int(is_burst.sum()))]
    places = np.sort(longest)
    end = first.measured[0].partial.end
    assert end is not None  # of one run
    start_ns = np.maximum(tables[0].start_ns[places] - (end.origin_ns or 0), 0)
    return _Drawn(start_ns, durations[:, places], ops[:, places], np.array([table.bytes[places] for table in tables]),
                  int(is_burst.sum()))


def _spec(entries: Sequence[Entry], drawn: _Drawn, op: str, order: Sequence[str]) -> Spec | None:
    slots_ns = drawn.duration_ns.max(axis=0)
    gap_ns = slots_ns.sum() * _GAP
    begins = (np.cumsum(slots_ns) - slots_ns + gap_ns * np.arange(len(slots_ns))) / 1e9
    style = SeriesStyle.of_entries([entry.document for entry in entries], order)
    points = []
    for entry, durations, rates in zip(entries, drawn.duration_ns / 1e9, drawn.rate_mb_s, strict=True):
        for begin, duration, rate in zip(begins.tolist(), durations.tolist(), rates.tolist(), strict=True):
            corners = ((begin, 0.0), (begin, rate), (begin + duration, rate), (begin + duration, 0.0))
            points += [Point(entry.document["label"], "", round(x, 9), float(f"{y:.5g}")) for x, y in corners]
        if style.is_muted:
            del points[-1]  # names stand at the ends of lines: at the height of the bar, not all at zero
    until = float(begins[-1] + slots_ns[-1] / 1e9)
    last_ns = int((drawn.start_ns + slots_ns).max())
    folded_ns = max(0, last_ns - int(slots_ns.sum()))
    x = Axis(f"start of each burst since the first I/O; {units.duration(folded_ns)} of idle time folded",
             domain=(0, until))
    spec = curves(f"Bursts of {op}s, aligned at their start, by drive", points, style, x,
                  Axis("rate in the burst, MB/s"), dots=False)
    if spec is None:
        return None
    starts = {round(begin, 9): units.duration(ns) for begin, ns in zip(begins.tolist(), drawn.start_ns.tolist(),
                                                                       strict=True)}
    ticks = starts | _inner_ticks(begins.tolist(), (slots_ns / 1e9).tolist(), until)
    labels = json.dumps({f"{at:.9f}": text for at, text in ticks.items()}, ensure_ascii=False)
    axis = spec["encoding"]["x"]["axis"]
    axis.update(values=list(ticks), labelExpr=f"({labels})[format(datum.value, '.9f')]", labelOverlap="greedy")
    rules: Spec = {"data": {"values": [{"x": begin} for begin in starts]},
                   "mark": {"type": "rule", "style": "limit", "strokeDash": [2, 3], "strokeWidth": 0.7},
                   "encoding": {"y": {"value": 0}, "y2": {"value": "height"}}}
    return {**spec, "layer": [rules, *spec["layer"]]}


def _inner_ticks(begins: Sequence[float], slots: Sequence[float], until: float) -> dict[float, str]:
    """Place -> label of times since the start of a burst, at most about _MOST_TICKS in all, clear of the labels of the
    starts."""
    least = until / _MOST_TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
    return {round(begin + index * step, 9): f"+{units.duration(index * step * 1e9)}"
            for begin, slot in zip(begins, slots, strict=True) for index in range(1, int(slot / step) + 1)
            if index * step >= _LABEL * until and slot - index * step >= _LABEL * until}


def _table(entries: Sequence[Entry], drawn: _Drawn, op: str) -> Table:
    columns = (Column("drive", "Drive"), Column("start_ns", "Start", "time", formula="start − first submit"),
               Column("duration_ns", "Duration", "time", formula="last completion − start", better="lower"),
               Column("ops", "I/Os", "count"), Column("moved_bytes", "Moved", "size"),
               Column("rate_mb_s", "Rate", "rate", formula="bytes / duration", better="higher"))
    rows = []
    for place, entry in enumerate(entries):
        label, keys = entry.document["label"], [column.key for column in columns[1:]]
        values = (drawn.start_ns, *(of_drives[place] for of_drives in (
            drawn.duration_ns, drawn.ops, drawn.moved, drawn.rate_mb_s)))
        rows += [Row({"drive": label, **dict(zip(keys, burst, strict=True))}, label)
                 for burst in zip(*(column.tolist() for column in values), strict=True)]
    return Table(f"Bursts of {op}s of each drive's first run", columns, tuple(rows))
