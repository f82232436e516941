"""Completions per second over time, with the drive's temperature below where it was measured."""

from pathlib import Path

import numpy as np

from blkreel.traces.errors import TraceError
from blkreel.traces.telemetry import read_telemetry

from .model import Column, Exhibit, Row, Table
from .parts import finished

_MOST = 400  # points of a line
_TITLE = "seconds since the run began"


def iops(entry, id_: str) -> Exhibit | None:
    """entry: an analysis.document.Entry; its first run is drawn."""
    if entry.partial.read.seconds.runs[0].length < 2:
        return None
    rows = iops_rows(entry)
    degrees = temperature(entry.measured[0])
    shown = entry.shown
    length = 2 * rows[-1]["t"] - rows[-2]["t"]
    if degrees:
        length = max(length, degrees[-1]["t"])
    views = [{"height": 190, **_completions(rows, length, None if degrees else _TITLE)}]
    notes = ()
    if degrees:
        views.append({"height": 90, **_temperature(degrees, length)})
    elif entry.measured[0].run:
        notes = ("No temperature of the drive was found beside the run.",)
    columns = [Column("from_ns", "From", "time", formula="start of the second, since the first I/O"),
               Column("read_iops", "Reads", "number", "IOPS", "reads completed in that second; the mean of several"),
               Column("write_iops", "Writes", "number", "IOPS", "writes completed in that second; the mean of several")]
    if degrees:
        columns.append(Column("temperature_c", "Drive", "number", "°C", "the sample before that second's end"))
    table = Table("Mean completions per second, from this second on", tuple(columns),
                  tuple(Row({"from_ns": int(row["t"] * 1e9), "read_iops": row["reads"], "write_iops": row["writes"],
                             "temperature_c": _at(degrees, row["t"])}, shown["label"]) for row in rows))
    spec = (finished("Completions per second of reads and writes, with the drive's temperature", fills=False,
                     vconcat=views) if degrees else
            finished("Completions per second of reads and writes", **views[0]))
    return Exhibit(id_, "Completions per second", table, spec, "",
                   "Reads: whole line, orange. Writes: dashed, blue.", notes)


def iops_rows(entry) -> list[dict]:
    """Mean IOPS of each second, reads and writes; of several seconds together where there are more than _MOST."""
    reads, writes = (part.seconds.runs[0] for part in (entry.partial.read, entry.partial.write))
    together = -(-reads.length // _MOST) or 1
    return [{"t": place * together, "reads": read, "writes": write} for place, (read, write) in enumerate(
        zip(reads.together(together).tolist(), writes.together(together).tolist(), strict=True))]


def temperature(measured) -> list[dict]:
    """{"t", "c"} of the drive's temperature during the run, thinned to _MOST; empty where there is none."""
    if not measured.run or not isinstance(measured.path, Path):
        return []  # what lies beside a run that is stored elsewhere is not fetched
    path = measured.path if measured.path.is_dir() else measured.path.parent
    try:
        telemetry = read_telemetry(path)
    except (TraceError, OSError):
        return []  # damaged telemetry is a missing sensor: the records beside it stand
    if telemetry is None:
        return []
    time_ns, value = telemetry.series("temperature_c")
    during = (time_ns >= 0) & (time_ns <= max(measured.partial.makespan_ns, 1) + 10**9)
    time_ns, value = time_ns[during], value[during]
    if len(value) < 2:
        return []
    picked = np.unique(np.linspace(0, len(value) - 1, min(_MOST, len(value))).round().astype(int))
    return [{"t": round(float(time_ns[at]) / 1e9, 3), "c": float(value[at])} for at in picked]


def _at(degrees, second):
    before = [one["c"] for one in degrees if one["t"] <= second + 1]
    return before[-1] if before else None


def _x(length, title):
    return {"field": "t", "type": "quantitative", "title": title, "scale": {"nice": False, "domain": [0, length]},
            "axis": {"grid": False}}


def _completions(rows, length, title):
    step = rows[1]["t"] - rows[0]["t"]
    values = [*rows, {**rows[-1], "t": rows[-1]["t"] + step}]
    line = {"type": "line", "interpolate": "step-after", "strokeWidth": 1.6}
    layers = [{"mark": {**line, "style": op, "strokeDash": dash},
               "encoding": {"x": _x(length, title), "y": {
                   "field": op, "type": "quantitative", "title": "completions per second",
                   "axis": {"tickCount": 4, "format": ",~r"}}}} for op, dash in (("writes", [4, 2]), ("reads", [1, 0]))]
    return {"data": {"values": values}, "layer": layers}


def _temperature(degrees, length):
    return {"data": {"values": degrees}, "mark": {"type": "line", "strokeWidth": 1.6, "style": "plain"}, "encoding": {
        "x": _x(length, _TITLE), "y": {"field": "c", "type": "quantitative", "title": "drive, °C",
                                       "scale": {"zero": False}, "axis": {"tickCount": 3}}}}
