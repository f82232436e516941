"""How much slower reads and loading are with the background writes than without them, by drive."""

from collections.abc import Sequence
from typing import Any

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.bars import Bar, bar_rows
from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Datum
from blkreel.analysis.metrics.definitions.headline import LOAD_TIME, READ_WAIT
from blkreel.analysis.report.answer import noun
from blkreel.analysis.report.commands import path_of
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.common import units

_FORMULA = ("with the background writes / without them: the same reads on the same drive in the same state, replayed "
            "twice")
_MEASURES = {LOAD_TIME.key: noun(LOAD_TIME), READ_WAIT.key: noun(READ_WAIT)}


def slowdown(entries: Sequence[Datum], id_: str) -> Chart | None:
    """entries: of a document, with `slowdown_by_writes` (compare/second_pass.py). None where none has a value."""
    slowdowns = [(entry, own) for entry in entries if (own := _paired(entry))]
    if not slowdowns:
        return None
    measure = LOAD_TIME.key if all(own.get(LOAD_TIME.key) for _, own in slowdowns) else READ_WAIT.key
    ordered = sorted(((entry, own[measure]) for entry, own in slowdowns if own.get(measure)),
                     key=lambda pair: float(pair[1]["value"]))
    what = _MEASURES[measure]
    bars = [_bar(entry, ratio, place) for place, (entry, ratio) in enumerate(ordered)]
    style = SeriesStyle.of_entries([entry for entry, _ in ordered], [entry["label"] for entry, _ in ordered])
    title = "Slowdown by background writes"
    notes = tuple(f"Without a value: {entry['label']}: {_why(entry)}." for entry in entries
                  if entry["label"] not in {bar.entry for bar in bars})
    return Chart(id_, title, _table(slowdowns, title), bar_rows(f"{title} by drive, the least first", bars, style,
                                                                Axis(f"{what}, with / without", "×", "auto")),
                 "lower", f"{what[:1].upper()}{what[1:]} {_FORMULA}.", notes)


def _paired(entry: Datum) -> dict[str, Any]:
    return (entry.get("slowdown_by_writes") or {}).get("paired") or {}


def _why(entry: Datum) -> str:
    return (entry.get("slowdown_by_writes") or {}).get("why") or "no baseline"


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
                why |= dict.fromkeys((f"{name}_low", f"{name}_high"), f"n={entry['n']}: too few runs")
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
