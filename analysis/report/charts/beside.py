"""How long a user waits alone and beside a background, by drive: two bars each, sorted by the time beside it."""

from collections.abc import Sequence
from typing import Any

from blkreel.analysis.charts.bars import Bar, bar_rows
from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Axis, Datum
from blkreel.analysis.metrics.definitions.headline import ALONE, BACKGROUND_REACHED, SLOWDOWN_BY_WRITES
from blkreel.analysis.metrics.definitions.metric import Metric
from blkreel.analysis.report.answer import noun, usable
from blkreel.analysis.report.beside import (
    measure_of,
    of_entry,
    over_phases,
    phases_of,
    slowdown_words,
    without_slowdown,
)
from blkreel.analysis.report.commands import path_of
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.traces.format.metadata_types import Run

from .slowdown import EXPOSURE_COLUMNS, exposure_values


def beside(entries: Sequence[Datum], id_: str) -> Chart | None:
    """entries: of a section. None where no run has a background."""
    with_background = [entry for entry in entries if of_entry(entry)]
    if not with_background:
        return None
    measure = measure_of(with_background[0])
    alone = ALONE[measure.key]
    values = [(entry, value) for entry in with_background if (value := _beside(entry, measure, alone)) is not None]
    values.sort(key=lambda pair: pair[1])
    ordered = [entry for entry, _ in values]
    bars = [_bar(entry, value, measure, alone, place) for place, (entry, value) in enumerate(values)]
    style = SeriesStyle.of_entries(ordered, [entry["label"] for entry in ordered])
    what, words = noun(measure), of_entry(with_background[0])
    title = f"{what[:1].upper()}{what[1:]} beside {words}"
    text = (f"Upper bar: alone. Lower bar: beside {words}; at the right the slowdown."
            if any(bar.base is not None for bar in bars) else "")
    absent = [entry["label"] for entry in entries if entry["label"] not in {bar.entry for bar in bars}]
    notes = [f"Without a value: {', '.join(absent)}."] if absent else []
    notes += [f"{entry['label']}: {why}." for entry in ordered if (why := without_slowdown(entry))]
    if any(phases_of(entry) for entry in ordered):
        notes.append("Beside the background: mean over the phases of it that were simulated. Times elsewhere are of "
                     "the first phase.")
    return Chart(id_, title, _table(with_background, measure, alone, title),
                 bar_rows(f"{title} by drive, the least first", bars, style, Axis(what, "ns", "linear")), "lower", text,
                 tuple(notes))


def _beside(entry: Datum, measure: Metric, alone: Metric) -> float | None:
    value = usable(entry, measure)
    return None if value is None else over_phases(entry, value, usable(entry, alone))


def _bar(entry: Datum, value: float, measure: Metric, alone: Metric, place: int) -> Bar:
    before = usable(entry, alone)
    text = measure.unit.text(round(value))
    if before is not None:
        text = slowdown_words(entry).partition(",")[0]
    return Bar(entry["label"], value, place, text=text, base=before,
               spread=slowdown_words(entry) if before is not None else "")


def _table(with_background: Sequence[Datum], measure: Metric, alone: Metric, title: str) -> Table:
    columns = (Column("drive", "Drive"), Column("alone", "Alone", "time", "ns", alone.formula, better="lower"),
               Column("beside", "Beside", "time", "ns", measure.formula, better="lower"),
               Column("slowdown", "Slowdown", "number", "×", SLOWDOWN_BY_WRITES.formula, better="lower"),
               Column("low", "Interval, low", "number", "×"), Column("high", "Interval, high", "number", "×"),
               Column("reached", BACKGROUND_REACHED.title, "share", "%", BACKGROUND_REACHED.formula, better="higher"),
               Column("rate", "Background", "rate", "MB/s", "bytes written during the workload / its time; of several "
                      "runs the least"),
               Column("background_p99", "Background p99", "time", "ns",
                      "latency of its writes; of several runs the most", better="lower"),
               *EXPOSURE_COLUMNS, Column("runs", "Runs", "count"))
    rows = []
    for entry in with_background:
        slowdown = entry["headline"][SLOWDOWN_BY_WRITES.key]
        values: dict[str, Any] = {
            "drive": entry["label"], "alone": usable(entry, alone), "beside": _beside(entry, measure, alone),
            "slowdown": slowdown["value"], "low": slowdown.get("low"), "high": slowdown.get("high"),
            "reached": usable(entry, BACKGROUND_REACHED), "rate": _worst(entry, "reached_bytes_s", min, 1e6),
            "background_p99": _worst(entry, "latency_p99_ns", max), **exposure_values(entry), "runs": entry["n"]}
        why = {name: "not measured" for name, value in values.items() if value is None}
        if values["background_p99"] is None and values["rate"]:
            why["background_p99"] = "n too small: fewer than 1,000 I/Os"
        if withheld := without_slowdown(entry):
            why |= {name: withheld for name in ("alone", "slowdown") if values[name] is None}
        if entry["n"] < ENOUGH_RUNS and slowdown["value"] is not None:
            why |= {name: f"n={entry['n']}: too few runs" for name in ("low", "high") if values[name] is None}
        rows.append(Row(values, entry["label"], why, path=path_of(entry)))
    return Table(title, columns, tuple(rows))


def _worst(entry: Datum, key: str, which: Any, divisor: float = 1) -> float | None:
    """Of all backgrounds of all runs."""
    values = [value for run in entry["runs"] for background in Run.of(run).background
              if (value := getattr(background, key)) is not None]
    return which(values) / divisor if values else None
