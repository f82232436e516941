"""Charts of reads beside writes: the slowdown of reads and loads by drive, and the latency of reads by the bytes
written before them and by the writes in flight.
"""

from collections.abc import Callable, Sequence
from typing import Any

from blkreel.analysis.charts.bars import Bar, bar_rows
from blkreel.analysis.charts.curves import curve_view
from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Axis, Datum, Point, Spec, finish
from blkreel.analysis.metrics.definitions.headline import LOAD_TIME, READ_WAIT
from blkreel.analysis.report.answer import noun
from blkreel.analysis.report.columns import without_interval
from blkreel.analysis.report.commands import path_of
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.common import units

_FORMULA = ("with the background writes / without them: the same reads on the same drive in the same state, replayed "
            "twice")
_MEASURES = {LOAD_TIME.key: noun(LOAD_TIME), READ_WAIT.key: noun(READ_WAIT)}


def slowdown(entries: Sequence[Datum], id_: str) -> Chart | None:
    """entries: of a document, with `slowdown_by_writes` (compare/second_pass.py). None where none has a value."""
    slowdowns = [(entry, own) for entry in entries
                 if (own := (entry.get("slowdown_by_writes") or {}).get("paired"))]
    if not slowdowns:
        return None
    measure = LOAD_TIME.key if all(own.get(LOAD_TIME.key) for _, own in slowdowns) else READ_WAIT.key
    ordered = sorted(((entry, own[measure]) for entry, own in slowdowns if own.get(measure)),
                     key=lambda pair: float(pair[1]["value"]))
    what = _MEASURES[measure]
    bars = [_bar(entry, ratio, place) for place, (entry, ratio) in enumerate(ordered)]
    style = SeriesStyle.of_entries([entry for entry, _ in ordered], [entry["label"] for entry, _ in ordered])
    title = "Slowdown by background writes"
    notes = tuple(
        f"Without a value: {entry['label']}: {(entry.get('slowdown_by_writes') or {}).get('why') or 'no baseline'}."
        for entry in entries if entry["label"] not in {bar.entry for bar in bars})
    return Chart(id_, title, _table(slowdowns, title), bar_rows(f"{title} by drive, the least first", bars, style,
                                                                Axis(f"{what}, with / without", "×", "auto")),
                 "lower", f"{what[:1].upper()}{what[1:]} {_FORMULA}.", notes)


def _bar(entry: Datum, ratio: dict[str, Any], place: int) -> Bar:
    value, sure, runs = ratio["value"], _interval(entry, ratio), ratio.get("runs") or ()
    low, high = (sure["low"], sure["high"]) if sure else (min(runs), max(runs)) if len(runs) > 1 else (None, None)
    kind = "95 % interval" if sure else "range of the runs"
    spread = "" if low is None or high is None else f"{kind}: {_times(low)} to {_times(high)}"
    return Bar(entry["label"], value, place, low, high, bool(sure), text=_times(value), spread=spread)


def _interval(entry: Datum, ratio: dict[str, Any]) -> dict[str, Any] | None:
    return ratio.get("interval") if entry["n"] >= ENOUGH_RUNS else None


def _times(ratio: float) -> str:
    return f"{units.digits(ratio)}x"


def _table(slowdowns: Sequence[tuple[Datum, dict[str, Any]]], title: str) -> Table:
    measures = [name for name in _MEASURES if any(own.get(name) for _, own in slowdowns)]
    columns = (Column("drive", "Drive"), *(
        column for name in measures for column in (
            Column(f"{name}_slowdown", _MEASURES[name].capitalize(), "number", "×", _FORMULA, better="lower"),
            Column(f"{name}_low", "Interval, low", "number", "×"),
            Column(f"{name}_high", "Interval, high", "number", "×"))),
        *EXPOSURE_COLUMNS, Column("runs", "Runs", "count"))
    rows = []
    for entry, own in slowdowns:
        values: dict[str, Any] = {"drive": entry["label"], **exposure_values(entry), "runs": entry["n"]}
        why = {}
        for name in measures:
            ratio = own.get(name) or {}
            sure = _interval(entry, ratio) or {}
            values |= {f"{name}_slowdown": ratio.get("value"), f"{name}_low": sure.get("low"),
                       f"{name}_high": sure.get("high")}
            if not ratio:
                why[f"{name}_slowdown"] = "not at this pace"
            if not sure:
                why |= dict.fromkeys((f"{name}_low", f"{name}_high"),
                                     without_interval(entry, why.get(f"{name}_slowdown", "")))
        if not entry.get("exposure"):
            why |= dict.fromkeys((column.key for column in EXPOSURE_COLUMNS), "not recorded by that version")
        rows.append(Row(values, entry["label"], why, path=path_of(entry)))
    return Table(title, columns, tuple(rows))


EXPOSURE_COLUMNS = (
    Column("beside_share", "Read beside writes", "share", "%",
           "share of the bytes read that were submitted while background writes were going on: outstanding, or 5 MB/s "
           "and more of them completed within the second around"),
    Column("met_share", "Read with a write outstanding", "share", "%",
           "share of the bytes read that were submitted while a background write was outstanding"),
    Column("background_rate", "Rate of the writes", "rate", "MB/s", "mean rate of these writes during these reads"))


def exposure_values(entry: Datum) -> dict[str, Any]:
    """Values of EXPOSURE_COLUMNS from `exposure` of an entry."""
    exposure = entry.get("exposure") or {}
    rate = exposure.get("write_bytes_s")
    return {"beside_share": exposure.get("beside_share"), "met_share": exposure.get("met_share"),
            "background_rate": None if rate is None else rate / 1e6}


_DRAWN_NS = 100_000_000  # of the windows, the one that is drawn; the table holds them all
_QUANTILES = (("p50_ns", "median"), ("p99_ns", "p99"))
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
    style = SeriesStyle.of_entries(measured, order, [name for _, name in _QUANTILES])
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
    return Chart(id_, "Read latency by concurrent writes", _windows(measured), spec, "", "Median dashed, p99 solid.",
                 (_NO_CAUSE, *why), wide=True)


def _view(bins: dict[str, list[Datum]], style: SeriesStyle, title: str, text: Callable[[int], str]) -> Spec | None:
    """bins: by label. Only bins with a known percentile are drawn; None for a single one, which compares nothing."""
    begins = sorted({bin_["from"] for of_drive in bins.values() for bin_ in of_drive
                     if any(bin_[key] for key, _ in _QUANTILES)})
    points = [Point(label, name, begins.index(bin_["from"]), bin_[key]) for label, of_drive in bins.items()
              for key, name in _QUANTILES for bin_ in sorted(of_drive, key=lambda bin_: bin_["from"]) if bin_[key]]
    if len(begins) < 2:
        return None
    names = tuple(text(begin) if begin else "none" for begin in begins)
    return {"height": 170, **curve_view(points, style, Axis(title, kind="names", names=names),
                                        Axis("read latency", "ns", "log"), dash_lines=True)}


def _windows(measured: Sequence[Datum]) -> Table:
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
