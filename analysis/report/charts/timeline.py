"""Throughput of reads over that of writes, one row per drive."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.over_time import Panel, time_rows
from blkreel.analysis.charts.series_style import drive_name
from blkreel.analysis.charts.spec import Datum
from blkreel.analysis.metrics.definitions.headline import READ_THROUGHPUT, READ_WAIT, WRITE_WAIT
from blkreel.analysis.metrics.partials.timeline import Timeline
from blkreel.analysis.report.document import Entry
from blkreel.common import units
from blkreel.common.printable import within_sentence

from .over_time import USAGE

Bins = npt.NDArray[np.int64]
_MOST_BINS, _BINS_IN_ALL = 400, 2400
_TEXT = "Reads (orange, outlined) in front of writes (blue), one scale for all rows."


def timeline(entries: Sequence[Entry], id_: str, order: Sequence[str]) -> Chart | None:
    """entries: of a report.document.Section; each is drawn by its first run. order: of the labels, from the top."""
    drawn = sorted((entry for entry in entries if entry.measured[0].timeline.used),
                   key=lambda entry: order.index(entry.document["label"]))
    if not drawn:
        return None
    width_ns, binned = rebin([entry.measured[0].timeline for entry in drawn])
    rows = [steps(bin_, width_ns) for bin_ in binned]
    width = units.setting(width_ns)
    notes: tuple[str, ...] = (f"MB/s completed in bins of {width}.",)
    if any(entry.document["n"] > 1 for entry in drawn):
        notes += ("With several runs of a drive, the first run is drawn.",)
    panels = [Panel(entry.document["label"], drive_name(entry.document), [
                {"t": round(row["t_ns"] / 1e9, 6), **{op: float(f"{row[op]:.5g}") for op in ("read", "write")}}
                for row in steps_], steps_[-1]["t_ns"] / 1e9, caption=_caption(entry.document))
              for entry, steps_ in zip(drawn, rows, strict=True)]
    return Chart(id_, "Reads over writes", _table(drawn, rows, width),
                 time_rows("Throughput of reads over writes, by drive, over time", panels, "MB/s"), text=_TEXT,
                 usage=USAGE, notes=notes, wide=True, zooms=True)


def rebin(timelines: Sequence[Timeline]) -> tuple[int, list[Bins]]:
    """(width in ns of all bins, bytes of reads and writes in them, (2, bins) each): as wide as the widest, and wider
    until all of them together are at most _BINS_IN_ALL."""
    width_ns = max(line.width_ns for line in timelines)
    longest = max(line.used * line.width_ns for line in timelines)
    while longest / width_ns > min(_MOST_BINS, _BINS_IN_ALL // len(timelines)):
        width_ns *= 2
    binned = []
    for line in timelines:
        together = width_ns // line.width_ns
        bins = np.asarray(line.bytes)[:2, :line.used]
        bins = np.pad(bins, ((0, 0), (0, -bins.shape[1] % together)))
        binned.append(bins.reshape(2, -1, together).sum(axis=2))
    return width_ns, binned


def steps(binned: Bins, width_ns: int) -> list[Datum]:
    """MB/s from the start of each bin on, without repeated values; the last row is the end."""
    rows, before = [], None
    for index in range(binned.shape[1]):
        value = tuple(int(count) for count in binned[:, index])
        if value != before:
            read, write = (count * 1000 / width_ns for count in value)
            rows.append({"t_ns": index * width_ns, "read": read, "write": write})
        before = value
    rows.append({**rows[-1], "t_ns": binned.shape[1] * width_ns})
    return rows


def _caption(entry: Datum) -> str:
    values = ((metric, entry["headline"][metric.key]["value"])
              for metric in (READ_THROUGHPUT, READ_WAIT, WRITE_WAIT))
    return " · ".join(f"{within_sentence(metric.short)} {metric.unit.text(value)}"
                      for metric, value in values if value is not None)


def _table(drawn: Sequence[Entry], rows: list[list[Datum]], width: str) -> Table:
    columns = (Column("from_ns", "From", "time", formula="start of the bin, since the first I/O"),
               Column("read_mb_s", "Reads", "rate", formula=f"bytes read that completed in the bin / {width}"),
               Column("write_mb_s", "Writes", "rate", formula=f"bytes written that completed in the bin / {width}"))
    return Table("Throughput from this time on, until the next row", columns, tuple(
        Row({"from_ns": row["t_ns"], "read_mb_s": row["read"], "write_mb_s": row["write"]}, entry.document["label"],
            group=entry.document["label"]) for entry, steps_ in zip(drawn, rows, strict=True) for row in steps_[:-1]))
