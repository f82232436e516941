"""One run over time: latency of single I/Os, one row per drive, and completions per second with the temperature."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.over_time import Panel, row_height, row_title, time_rows, zoomed_rows
from blkreel.analysis.charts.series_style import drive_name
from blkreel.analysis.charts.spec import TIMES, Axis, Datum, Spec, labels_by_scale, scale_axis, tooltip
from blkreel.analysis.metrics.definitions.registry import METRICS
from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.metrics.partials.latency_points import LatencyPoints
from blkreel.analysis.report.columns import value_of
from blkreel.analysis.report.document import Entry
from blkreel.common import units
from blkreel.common.errors import TraceError
from blkreel.traces.telemetry.reader import read_telemetry

_POINTS, _FEWEST, _STRIP_POINTS = 2400, 150, 250  # of all rows, of each row at least, of the strip
_AREAS = ((100, 24), (2, 12), (1, 7))  # I/Os of a point from which on it has that area, in square pixels
_MOST = 400  # points of a line
_OPS = ("read", "write")
_TEXT = "Reads orange, writes blue. A point is the slowest I/O of its surroundings; larger points stand for more I/Os."
USAGE = "The strip at the bottom zooms all rows."
_REDUCED = ("Latency (from submit) at the time of submit. Where I/Os are dense, one point stands for those of similar "
            "time and latency: the slowest of them.")


def latency_over_time(entries: Sequence[Entry], id_: str, order: Sequence[str]) -> Chart | None:
    """entries: of a report.document.Section; each is drawn by its first run. order: of the labels, from the top."""
    drawn = sorted((entry for entry in entries if entry.measured[0].latency_points.count),
                   key=lambda entry: order.index(entry.document["label"]))
    if not drawn:
        return None
    most = max(_FEWEST, _POINTS // len(drawn))
    points = [entry.measured[0].latency_points.thinned(most) for entry in drawn]
    notes: tuple[str, ...] = (_REDUCED,)
    if any(entry.document["n"] > 1 for entry in drawn):
        notes += ("With several runs of a drive, the first run is drawn.",)
    return Chart(id_, "Latency of single I/Os over time", _table(drawn, points), _spec(drawn, points), "lower", _TEXT,
                 notes, USAGE, wide=True, zooms=True)


def _spec(drawn: Sequence[Entry], points: Sequence[LatencyPoints]) -> Spec:
    # A logarithmic axis has no 0; a latency below 1 ns is below the resolution of the clock.
    every = [max(1, ns) for point in points for ns in point.latency_ns.tolist()]
    up = scale_axis(Axis("latency", "ns", "log"), every)
    height = row_height(len(drawn))
    rows: list[Spec] = []
    for entry, point in zip(drawn, points, strict=True):
        label = entry.document["label"]
        title = row_title(label, drive_name(entry.document), _caption(entry.document), height)
        rows.append({"height": height, "title": title, "data": {"values": _data(point, {"entry": label})},
                     "transform": [{"calculate": labels_by_scale("datum.ns", TIMES, ".3~r"), "as": "latency"}],
                     "layer": [_marks(True)],
                     "encoding": {"y": up.encode("ns", minExtent=46, maxExtent=46, title=None)}})
    longest = max(points, key=lambda point: int(point.since_ns.max()))
    strip = {"data": {"values": _data(longest.thinned(_STRIP_POINTS), {})}, "layer": [{
        **_marks(False), "encoding": {**_marks(False)["encoding"], "y": {**up.encode("ns"), "axis": None}}}]}
    until = max(int(point.since_ns.max()) for point in points) / 1e9
    return zoomed_rows("Latency of single reads and writes by time of submit, by drive", rows, strip, 0,
                       until * 1.005 or 1e-6)


def _marks(has_tooltip: bool) -> Spec:
    fields = tooltip(("op", "operation"), ("t", "submit, s", ",.6~f"), ("latency", "latency"), ("n", "I/Os", ","))
    area: Spec = {"condition": [{"test": f"datum.n >= {ops}", "value": area} for ops, area in _AREAS[:-1]],
                  "value": _AREAS[-1][1]}
    return {"mark": {"type": "point", "shape": "circle", "filled": True, "opacity": 0.75, "clip": True}, "encoding": {
        "color": {"condition": {"test": "datum.op === 'write'", "value": {"expr": "write"}}, "value": {"expr": "read"}},
        "size": area, **({"tooltip": fields} if has_tooltip else {})}}


def _data(points: LatencyPoints, entry: Datum) -> list[Datum]:
    """Writes before reads, so that reads are drawn over them; of each, points of one area together."""
    rows = [{**entry, "op": _OPS[kind], "t": round(since_ns / 1e9, 6), "ns": max(1, latency_ns), "n": ops}
            for kind, since_ns, latency_ns, ops in _numbers(points)]
    return sorted(rows, key=lambda row: (
        row["op"] == "read", -next(area for least, area in _AREAS if row["n"] >= least), row["t"]))


def _numbers(points: LatencyPoints) -> list[tuple[int, int, int, int]]:
    return list(zip(points.kind.tolist(), points.since_ns.tolist(), points.latency_ns.tolist(), points.ops.tolist(),
                    strict=True))


def _caption(entry: Datum) -> list[str]:
    """p99 and maximum of the run that is drawn, a line for reads and one for writes."""
    lines = []
    for op in _OPS:
        latencies = ((name, value_of(entry["runs"][0], METRICS[f"{op}_{key}"]))
                     for name, key in (("p99", "p99"), ("max", "latency_max")))
        lines.append(" · ".join(f"{op} {name} {units.duration(ns)}" for name, ns in latencies
                                if isinstance(ns, int | float)))
    return [line for line in lines if line]


def _table(drawn: Sequence[Entry], points: Sequence[LatencyPoints]) -> Table:
    columns = (Column("op", "Operation"),
               Column("since_ns", "Submit", "time", formula="submit of the I/O, since the first I/O"),
               Column("latency_ns", "Latency", "time", formula="complete − submit of the slowest I/O of the point",
                      better="lower"),
               Column("ops", "I/Os", "count", formula="I/Os that the point stands for"))
    rows = []
    for entry, point in zip(drawn, points, strict=True):
        label = entry.document["label"]
        rows += [Row({"op": _OPS[kind], "since_ns": since_ns, "latency_ns": latency_ns, "ops": ops}, label, group=label)
                 for kind, since_ns, latency_ns, ops in sorted(_numbers(point), key=lambda row: -row[2])]
    return Table("The points of each drive's first run, slowest first", columns, tuple(rows))


def iops(entry: Entry, id_: str) -> Chart | None:
    """entry: a report.document.Entry; its first run is drawn. None for less than two seconds."""
    if entry.partial.read.seconds.runs[0].length < 2:
        return None
    rows, degrees = iops_rows(entry), temperature(entry.measured[0])
    document = entry.document
    until = 2 * rows[-1]["t"] - rows[-2]["t"]
    panel = Panel(document["label"], drive_name(document), rows, max([until, *(t for t, _ in degrees)]),
                  temperature=degrees)
    columns = [Column("from_ns", "From", "time", formula="start of the second, since the first I/O"),
               Column("read_iops", "Reads", "number", "IOPS", "reads completed in that second; the mean of several"),
               Column("write_iops", "Writes", "number", "IOPS", "writes completed in that second; the mean of several")]
    if degrees:
        columns.append(Column("temperature_c", "Drive", "number", "°C", "last sample before the end of that second"))
    table = Table("Mean completions per second, from this second on", tuple(columns), tuple(
        Row({"from_ns": int(row["t"] * 1e9), "read_iops": row["read"], "write_iops": row["write"],
             "temperature_c": next((value for t, value in reversed(degrees) if t <= row["t"] + 1), None)},
            document["label"]) for row in rows))
    notes = ("No temperature was recorded with this run.",) if entry.measured[0].is_run and not degrees else ()
    spec = time_rows("Completions per second of reads and writes", [panel], "IOPS")
    return Chart(id_, "Completions per second", table, spec,
                 text="Reads (orange, outlined) in front of writes (blue)" + (
                     "; temperature of the drive dashed, on the right." if degrees else "."),
                 notes=notes, wide=True, zooms=True)


def iops_rows(entry: Entry) -> list[Datum]:
    """Mean IOPS of each second, reads and writes; of several seconds together where there are more than _MOST."""
    reads, writes = (part.seconds.runs[0] for part in (entry.partial.read, entry.partial.write))
    together = -(-reads.length // _MOST) or 1
    return [{"t": place * together, "read": read, "write": write} for place, (read, write) in enumerate(
        zip(reads.together(together).tolist(), writes.together(together).tolist(), strict=True))]


def temperature(measured: Measured) -> list[tuple[float, float]]:
    """(s, degrees Celsius) during a run, at most _MOST; empty without samples, with damaged telemetry, and for a run
    in remote storage, whose telemetry is not fetched."""
    if not measured.is_run or not isinstance(measured.path, Path):
        return []
    try:
        telemetry = read_telemetry(measured.path if measured.path.is_dir() else measured.path.parent)
    except (TraceError, OSError):
        return []
    if telemetry is None:
        return []
    time_ns, value = telemetry.series("temperature_c")
    time_ns = time_ns - measured.account.begin_ns
    during = (time_ns >= 0) & (time_ns <= max(measured.partial.makespan_ns, 1) + 10**9)
    time_ns, value = time_ns[during], value[during]
    if len(value) < 2:
        return []
    picked = np.unique(np.linspace(0, len(value) - 1, min(_MOST, len(value))).round().astype(int))
    return [(round(float(time_ns[at]) / 1e9, 3), float(value[at])) for at in picked]
