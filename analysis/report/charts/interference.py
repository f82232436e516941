"""Latency of reads by what was written just before them, and by the writes in flight."""

from collections.abc import Callable, Sequence

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.curves import curve_view
from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Datum, Point, Spec, finish
from blkreel.common import units

_DRAWN_NS = 100_000_000  # of the windows, the one that is drawn; the table holds them all
_MEASURES = (("p50_ns", "median"), ("p99_ns", "p99"))
_NO_CAUSE = ("Writes in flight correlate with slow reads and are partly their result: a stall of the drive delays "
             "both. The bytes written before a read are a cause where the plan set their times.")


def interference(entries: Sequence[Datum], id_: str, order: Sequence[str]) -> Chart | None:
    """entries: of a document, with `interference` (analysis/compare/interference.py). None where none has it."""
    measured = [entry for entry in entries if (entry.get("interference") or {}).get("windows")
                and entry["interference"]["reads"] and entry["interference"]["writes"]]
    if not measured:
        return None
    window_ns = min((window["window_ns"] for window in measured[0]["interference"]["windows"]),
                    key=lambda ns: abs(ns - _DRAWN_NS))
    style = SeriesStyle.of_entries(measured, order, [name for _, name in _MEASURES])
    written: dict[str, list[Datum]] = {entry["label"]: next((
        window["bins"] for window in entry["interference"]["windows"] if window["window_ns"] == window_ns), [])
        for entry in measured}
    in_flight = {entry["label"]: entry["interference"]["in_flight"]["bins"] for entry in measured}
    views = [view for view in (
        _view(written, style, f"bytes written in the {units.setting(window_ns)} before the read, from", units.size),
        _view(in_flight, style, "writes in flight when the read was submitted, from", "{:,}".format)) if view]
    if not views:
        return None
    spec = finish("Latency of reads by the writes before them and in flight, by drive", vconcat=views)
    why = sorted({entry["interference"]["why"] for entry in entries if (entry.get("interference") or {}).get("why")})
    return Chart(id_, "Read latency by concurrent writes", _table(measured), spec, "", "Median dashed, p99 solid.",
                 (_NO_CAUSE, *why), wide=True)


def _view(bins: dict[str, list[Datum]], style: SeriesStyle, title: str, text: Callable[[int], str]) -> Spec | None:
    """bins: by label. Only bins with a known percentile are drawn; None for a single one, which compares nothing."""
    begins = sorted({bin_["from"] for of_drive in bins.values() for bin_ in of_drive
                     if any(bin_[key] for key, _ in _MEASURES)})
    points = [Point(label, name, begins.index(bin_["from"]), bin_[key]) for label, of_drive in bins.items()
              for key, name in _MEASURES for bin_ in sorted(of_drive, key=lambda bin_: bin_["from"]) if bin_[key]]
    if len(begins) < 2:
        return None
    names = tuple(text(begin) if begin else "none" for begin in begins)
    return {"height": 170, **curve_view(points, style, Axis(title, kind="names", names=names),
                                        Axis("read latency", "ns", "log"), dash_lines=True)}


def _table(measured: Sequence[Datum]) -> Table:
    columns = (Column("drive", "Drive"), Column("window_ns", "Written in the last", "time"),
               Column("from_bytes", "From", "size"), Column("to_bytes", "To, less than", "size"),
               Column("in_flight_from", "Writes in flight, from", "count"),
               Column("in_flight_to", "Less than", "count"), Column("n", "Reads", "count"),
               Column("mean_ns", "Mean", "time"), Column("p50_ns", "p50", "time"), Column("p99_ns", "p99", "time"))
    rows = []
    for entry in measured:
        label = entry["label"]
        for window in entry["interference"]["windows"]:
            rows += [_row(label, bin_, {"window_ns": window["window_ns"], "from_bytes": bin_["from"],
                                        "to_bytes": bin_["to"]}) for bin_ in window["bins"]]
        rows += [_row(label, bin_, {"in_flight_from": bin_["from"], "in_flight_to": bin_["to"]})
                 for bin_ in entry["interference"]["in_flight"]["bins"]]
    return Table("Read latency by the bytes written just before, and by the writes in flight", columns, tuple(rows))


def _row(label: str, entry: Datum, where: Datum) -> Row:
    why = {key: f"n too small (n={entry['n']:,})" for key in ("p50_ns", "p99_ns") if entry[key] is None}
    values = {key: entry[key] for key in ("n", "mean_ns", "p50_ns", "p99_ns")}
    return Row({"drive": label, **where, **values}, label, why, group=label)
