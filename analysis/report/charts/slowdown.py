"""How much slower reads and loading are with the background writes than without them, by drive."""

from collections.abc import Sequence
from typing import Any

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.bars import Bar, bar_rows
from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Datum
from blkreel.analysis.metrics.headline import LOAD_TIME, READ_WAIT
from blkreel.analysis.report.answer import noun
from blkreel.analysis.report.commands import path_of
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.common import numbers

_PAIRED = ("with the background writes / without them: the same reads on the same drive in the same state, replayed "
           "twice")
_MEASURES = {LOAD_TIME.key: noun(LOAD_TIME), READ_WAIT.key: noun(READ_WAIT), "latency": "read latency"}


def slowdown(entries: Sequence[Datum], id_: str) -> Chart | None:
    """entries: of a document, with `slowdown_by_writes` (analysis/compare/slowdown.py). None where none has a value.

    From baselines where any drive has one, else from the reads that met a write, which is a weaker statement.
    """
    kind = next((kind for kind in ("paired", "met") if any(_of(entry, kind) for entry in entries)), None)
    if kind is None:
        return None
    known = [(entry, own) for entry in entries if (own := _of(entry, kind))]
    measure = _measure([own for _, own in known], kind)
    ordered = sorted(((entry, own[measure]) for entry, own in known if own.get(measure)),
                     key=lambda pair: float(pair[1]["value"]))
    what = _MEASURES[measure]
    bars = [_bar(entry, ratio, place) for place, (entry, ratio) in enumerate(ordered)]
    style = SeriesStyle.of_entries([entry for entry, _ in ordered], [entry["label"] for entry, _ in ordered])
    title = "Slowdown by background writes" if kind == "paired" else "Reads that met a write"
    notes: tuple[str, ...] = () if kind == "paired" else (f"A weaker statement: {known[0][1]['note']}.",)
    absent = [entry["label"] for entry in entries if entry["label"] not in {bar.entry for bar in bars}]
    if absent:
        notes += (f"Without a value: {', '.join(absent)}.",)
    text = f"{what[:1].upper()}{what[1:]} {_PAIRED}." if kind == "paired" else (
        "Latency of the reads that met a write / latency of the other reads of their size.")
    return Chart(id_, title, _table(known, kind, title), bar_rows(f"{title} by drive, the least first", bars, style,
                                                                  Axis(f"{what}, with / without", "×", "auto")),
                 "lower", text, notes)


def is_paired(entries: Sequence[Datum]) -> bool:
    """Whether any drive has a baseline without the writes."""
    return any(_of(entry, "paired") for entry in entries)


def _of(entry: Datum, kind: str) -> dict[str, Any]:
    return (entry.get("slowdown_by_writes") or {}).get(kind) or {}


def _measure(slowdowns: Sequence[dict[str, Any]], kind: str) -> str:
    if kind == "met":
        return "latency"
    return "load_time" if all(own.get("load_time") for own in slowdowns) else "read_wait"


def _bar(entry: Datum, ratio: dict[str, Any], place: int) -> Bar:
    value, sure, runs = ratio["value"], _interval(entry, ratio), ratio.get("runs") or ()
    low, high = (sure["low"], sure["high"]) if sure else (min(runs), max(runs)) if len(runs) > 1 else (None, None)
    kind = "95 % interval" if sure else "range of the runs"
    spread = "" if low is None or high is None else f"{kind}: {_times(low)} to {_times(high)}"
    return Bar(entry["label"], value, place, low, high, bool(sure), text=_times(value), spread=spread)


def _interval(entry: Datum, ratio: dict[str, Any]) -> dict[str, Any] | None:
    return ratio.get("interval") if entry["n"] >= ENOUGH_RUNS else None


def _times(ratio: float) -> str:
    return f"{numbers.digits(ratio)}x"


def _table(known: Sequence[tuple[Datum, dict[str, Any]]], kind: str, title: str) -> Table:
    measures = [name for name in _MEASURES if any(own.get(name) for _, own in known)]
    formula = _PAIRED if kind == "paired" else "reads that met a write / the other reads of their size"
    columns = (Column("drive", "Drive"), *(
        column for name in measures for column in (
            Column(f"{name}_slowdown", _MEASURES[name].capitalize(), "number", "×", formula, better="lower"),
            Column(f"{name}_low", "Interval, low", "number", "×"),
            Column(f"{name}_high", "Interval, high", "number", "×"))),
        Column("runs", "Runs", "count"))
    rows = []
    for entry, own in known:
        values: dict[str, Any] = {"drive": entry["label"], "runs": entry["n"]}
        why = {}
        for name in measures:
            ratio = own.get(name) or {}
            sure = _interval(entry, ratio) or {}
            values |= {f"{name}_slowdown": ratio.get("value"), f"{name}_low": sure.get("low"),
                       f"{name}_high": sure.get("high")}
            if not ratio:
                why[f"{name}_slowdown"] = "not at this pace"
            if not sure:
                why |= dict.fromkeys((f"{name}_low", f"{name}_high"), f"n={entry['n']}: too few runs")
        rows.append(Row(values, entry["label"], why, path=path_of(entry)))
    return Table(title, columns, tuple(rows))
