"""Completions per second of one run, with the drive's temperature where it was measured."""

from pathlib import Path

import numpy as np

from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.over_time import Panel, time_rows
from blkreel.analysis.charts.series_style import drive_name
from blkreel.analysis.charts.spec import Datum
from blkreel.analysis.metrics.measure import Measured
from blkreel.analysis.report.document import Entry
from blkreel.common.errors import TraceError
from blkreel.traces.telemetry.reader import read_telemetry

_MOST = 400  # points of a line


def iops(entry: Entry, id_: str) -> Chart | None:
    """entry: a report.document.Entry; its first run is drawn. None for less than two seconds."""
    if entry.partial.read.seconds.runs[0].length < 2:
        return None
    rows, degrees = iops_rows(entry), temperature(entry.measured[0])
    shown = entry.shown
    until = 2 * rows[-1]["t"] - rows[-2]["t"]
    panel = Panel(shown["label"], drive_name(shown), rows, max([until, *(t for t, _ in degrees)]), temperature=degrees)
    columns = [Column("from_ns", "From", "time", formula="start of the second, since the first I/O"),
               Column("read_iops", "Reads", "number", "IOPS", "reads completed in that second; the mean of several"),
               Column("write_iops", "Writes", "number", "IOPS", "writes completed in that second; the mean of several")]
    if degrees:
        columns.append(Column("temperature_c", "Drive", "number", "°C", "last sample before the end of that second"))
    table = Table("Mean completions per second, from this second on", tuple(columns), tuple(
        Row({"from_ns": int(row["t"] * 1e9), "read_iops": row["read"], "write_iops": row["write"],
             "temperature_c": next((value for t, value in reversed(degrees) if t <= row["t"] + 1), None)},
            shown["label"]) for row in rows))
    notes = ("No temperature was recorded with this run.",) if entry.measured[0].run and not degrees else ()
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
    if not measured.run or not isinstance(measured.path, Path):
        return []
    try:
        telemetry = read_telemetry(measured.path if measured.path.is_dir() else measured.path.parent)
    except (TraceError, OSError):
        return []
    if telemetry is None:
        return []
    time_ns, value = telemetry.series("temperature_c")
    during = (time_ns >= 0) & (time_ns <= max(measured.partial.makespan_ns, 1) + 10**9)
    time_ns, value = time_ns[during], value[during]
    if len(value) < 2:
        return []
    picked = np.unique(np.linspace(0, len(value) - 1, min(_MOST, len(value))).round().astype(int))
    return [(round(float(time_ns[at]) / 1e9, 3), float(value[at])) for at in picked]
