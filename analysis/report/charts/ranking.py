"""Drives in the order of one headline metric: a bar each, with its interval or the range of its runs as a whisker."""

from collections.abc import Sequence
from dataclasses import dataclass

from blkreel.analysis.charts.bars import TIED, Bar, bar_rows
from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Axis, Datum, Spec
from blkreel.analysis.metrics.definitions.headline import READ_THROUGHPUT, leading_metrics
from blkreel.analysis.metrics.definitions.metric import Metric, pace_names
from blkreel.analysis.report.columns import missing, remark_of, without_interval
from blkreel.analysis.report.commands import column_of, path_of
from blkreel.analysis.stats.ranking import ENOUGH_RUNS, best_first
from blkreel.common.printable import within_sentence


def rankings(section: Datum) -> list[tuple[str, Metric]]:
    """(id of the chart, metric) of what a section leads with at its pace."""
    return [(metric.key.replace("_", "-"), metric) for metric in leading_metrics(pace_names(section["pace"]))]


@dataclass(frozen=True)
class RankedEntry:
    """document: of the entry. place: in the order of the figure, from 0. rank: from 1; None with too few runs or an
    invalid one."""

    document: Datum
    place: int
    rank: int | None


def ranked(entries: Sequence[Datum], metric: Metric) -> list[RankedEntry]:
    """Entries of a document that have the metric, the best first, those with an invalid run last. Ranks are those of
    the document."""
    values = {number: entry["headline"][metric.key]["value"] for number, entry in enumerate(entries)}
    ordered = [entries[number] for number in best_first(values, metric.better == "higher")]
    ordered.sort(key=lambda entry: entry["verdict"]["level"] == "invalid")
    return [RankedEntry(entry, place, entry["headline"][metric.key].get("rank")) for place, entry in enumerate(ordered)]


def ranking(id_: str, entries: Sequence[Datum], metric: Metric) -> Chart | None:
    """The drives in the order of a metric; None where no drive has it."""
    rows = ranked(entries, metric)
    if not rows:
        return None
    title = metric.title
    if metric is READ_THROUGHPUT and any(entry["writer"] != "none" for entry in entries):
        title = f"{title} under background writes"
    return Chart(id_, title, _table(entries, rows, metric, title), _spec(rows, metric, title), metric.better,
                 notes=_notes(entries, rows, metric))


def _spec(rows: Sequence[RankedEntry], metric: Metric, title: str) -> Spec | None:
    text = metric.unit.text
    bars = []
    for row in rows:
        label, figure = row.document["label"], row.document["headline"][metric.key]
        low, high, kind = figure["smallest"], figure["largest"], "range of the runs"
        if is_interval := figure.get("low") is not None:
            low, high, kind = figure["low"], figure["high"], figure.get("interval") or "95 % interval"
        bars.append(Bar(
            label, figure["value"], row.place, low=low, high=high, is_interval=is_interval, rank=row.rank,
            text=text(figure["value"]),
            spread=f"n={row.document['n']}" if low is None else
                   f"{kind}: {text(low)} to {text(high)} (n={row.document['n']})"))
    style = SeriesStyle.of_entries([row.document for row in rows], [row.document["label"] for row in rows])
    return bar_rows(f"{title} by drive, the best first; {metric.better} is better", bars, style,
                    Axis(within_sentence(metric.title), metric.unit.symbol, "auto"))


def _notes(entries: Sequence[Datum], rows: Sequence[RankedEntry], metric: Metric) -> tuple[str, ...]:
    notes = []
    ranks = [row.rank for row in rows if row.rank is not None]
    if len(set(ranks)) < len(ranks):
        notes.append(TIED)
    few = [entry for entry in entries if entry["n"] < ENOUGH_RUNS]
    if few:
        notes.append(f"With fewer than {ENOUGH_RUNS} runs there is no rank and no interval: the order is not "
                     "supported." + (" The thin line is the range of the runs." if any(entry["n"] > 1 for entry in few)
                                   else ""))
    missing_labels = [entry["label"] for entry in entries if entry["headline"][metric.key]["value"] is None]
    if missing_labels:
        notes.append(f"Without this figure: {', '.join(missing_labels)}.")
    return tuple(notes)


def _table(entries: Sequence[Datum], rows: Sequence[RankedEntry], metric: Metric, title: str) -> Table:
    stem, unit, form = metric.key, metric.unit.suffix, metric.unit.format
    columns = (
        Column("rank", "Rank", "count"), Column("drive", "Drive"), Column("state", "State"),
        column_of(metric, title),
        Column(f"{stem}_low{unit}", "Interval, low", form, formula="95 % interval over runs, on ln of the figure"),
        Column(f"{stem}_high{unit}", "Interval, high", form, formula="95 % interval over runs, on ln of the figure"),
        Column(f"{stem}_smallest{unit}", "Smallest run", form),
        Column(f"{stem}_largest{unit}", "Largest run", form),
        Column("runs", "Runs", "count"), Column("verdict", "Verdict", "verdict"))
    by_label = {row.document["label"]: row for row in rows}
    ordered = [row.document for row in rows] + [entry for entry in entries if entry["label"] not in by_label]
    return Table(f"{title}, the best first", columns, tuple(
        _row(entry, by_label.get(entry["label"]), metric) for entry in ordered))


def _row(entry: Datum, ranked_row: RankedEntry | None, metric: Metric) -> Row:
    figure, stem, unit = entry["headline"][metric.key], metric.key, metric.unit.suffix
    values = {"rank": ranked_row.rank if ranked_row else None, "drive": entry["label"],
              "state": (entry["state"] or {}).get("name"), metric.column: figure["value"],
              f"{stem}_low{unit}": figure.get("low"), f"{stem}_high{unit}": figure.get("high"),
              f"{stem}_smallest{unit}": figure["smallest"], f"{stem}_largest{unit}": figure["largest"],
              "runs": entry["n"], "verdict": entry["verdict"]["level"]}
    why = {metric.column: missing(entry, metric)} if figure["value"] is None else {}
    few = without_interval(entry, why.get(metric.column, ""))
    if not values["rank"]:
        why["rank"] = "a run is invalid" if entry["verdict"]["level"] == "invalid" else few
    if figure.get("low") is None:
        why |= {f"{stem}_low{unit}": few, f"{stem}_high{unit}": few}
    remark = remark_of(entry, metric)
    return Row(values, entry["label"], why, {metric.column: remark} if remark else {}, path=path_of(entry))
