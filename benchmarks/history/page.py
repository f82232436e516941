"""A history as a page: a chart for each metric, with the table of its nights or versions."""

from collections.abc import Sequence

from blkreel.analysis.charts.history import Dot, LevelLine, Step, history_chart
from blkreel.analysis.charts.model import Answer, Chart, Column, Entry, Page, Row, Section, Table
from blkreel.analysis.charts.theme import NO_BRAND, Brand
from blkreel.common.units import counted, size
from blkreel.common.verdict import judged

from .document import NOUNS, change_words, direction, interval_words, runs_of, sentence, spread_words
from .selection import Selected
from .series import History, as_percent, axis_of, columns_of

_METHOD = (
    ("change points", "largest sum of squares between two parts of the normal scores of the ranks, over all splits; p "
                      "by random orders of the series; confirmed between neighbors at p < 0.01"),
    ("size", "ratio of the geometric means after and before, with Welch's 95 % interval on the logarithms"),
    ("dates", "the band holds the true date in at least 95 % of series"),
    ("values", "by date: the geometric mean of each day (UTC); by version: each run"))


def page_of(histories: Sequence[History], selected: Selected, brand: Brand = NO_BRAND) -> Page:
    row = selected.rows[-1]
    entry = row["model"] or row["label"]
    facts = {"model": row["model"], "unit": row["unit"][:12], "state": row["state"],
             "capacity": size(row["capacity_bytes"]) if row["capacity_bytes"] else ""}
    levels = {row["verdict"] for row in selected.rows}
    verdict = judged((), "qualified" if "qualified" in levels else "valid")
    title = f"{row['workload_title']} on {entry}"
    first, last = selected.rows[0]["started_at"], selected.rows[-1]["started_at"]
    source = " · ".join(filter(None, (title, row["pace"], counted(len(selected.rows), "run"),
                                      f"{str(first)[:10]} to {str(last)[:10]}")))
    left_out = [f"Left out: {count} {why}." for why, count in selected.left_out.items()]
    workload = "; ".join(filter(None, (title, row["pace"], counted(len(selected.rows), "run"))))
    return Page(
        "history", title, f"{workload}.",
        (Entry(entry, {name: value for name, value in facts.items() if value}, verdict),),
        tuple(_section(history, entry, source) for history in histories),
        notices=(*selected.notices, *left_out), decisions=_METHOD, brand=brand,
        answer=Answer(sentence(histories[0]), f"{workload}."))


def _section(history: History, entry: str, source: str) -> Section:
    charts = [_chart(history, entry, chart_id(history))]
    if history.changes:
        charts.append(Chart(f"changes-{_word(history)}", "Changes", _changes(history, entry)))
    spread = [f"{spread_words(history).capitalize()}."] if history.spread is not None else []
    lead = (f"{sentence(history)}.", *spread)
    return Section(_word(history), history.metric.title, tuple(charts), lead, source)


def chart_id(history: History) -> str:
    return f"history-{_word(history)}"


def _word(history: History) -> str:
    """The key of the metric as a part of an id."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in history.metric.key.lower())


def _chart(history: History, entry: str, id_: str) -> Chart:
    metric, by_date = history.metric, history.by == "date"
    spec = history_chart(
        f"{metric.title} by {history.by}. {sentence(history)}.", entry,
        [Dot(point.name, point.value, point.smallest if point.runs > 1 else None,
             point.largest if point.runs > 1 else None, f"{point.runs:,}") for point in history.points],
        [LevelLine(level.first, level.last, level.value, metric.unit.text(level.value)) for level in history.levels],
        [Step(change.index, change.first, change.last, as_percent(change.point.ratio.value), change.worse)
         for change in history.changes], axis_of(metric), by_date=by_date)
    notes = ("The axis does not begin at zero.", "Thin lines: range of the runs.") if any(
        point.runs > 1 for point in history.points) else ("The axis does not begin at zero.",)
    text = "; ".join(change_words(history, change) for change in history.changes)
    return Chart(id_, f"{metric.title} by {history.by}", _points(history, entry), spec, metric.better,
                 f"{text}." if text else "", notes, wide=True)


def _points(history: History, entry: str) -> Table:
    metric = history.metric
    column, smallest, largest = columns_of(metric)
    columns = (Column(history.by, NOUNS[history.by].capitalize()), column, smallest, largest,
               Column("runs", "Runs", "count"), Column("change", "Change", "change"), Column("firmware", "Firmware"),
               Column("kernel", "Kernel"))
    starts = {change.index: change for change in history.changes}
    rows = []
    for index, point in enumerate(history.points):
        values = {history.by: point.name, column.key: point.value, smallest.key: point.smallest,
                  largest.key: point.largest, "runs": point.runs,
                  "change": starts[index].point.ratio.value - 1 if index in starts else None}
        for name in ("firmware", "kernel"):
            if name != history.by:
                values[name] = ", ".join(dict.fromkeys(row[name] for row in point.rows if row[name])) or None
        rows.append(Row(values, entry, path=tuple(row["path"] for row in point.rows)))
    with_values = tuple(column for column in columns if any(row.values.get(column.key) is not None for row in rows))
    return Table(f"{metric.title} by {history.by}: {counted(runs_of(history), 'run')}", with_values, tuple(rows))


def _changes(history: History, entry: str) -> Table:
    columns = (Column("at", NOUNS[history.by].capitalize()), Column("change", "Change", "change"),
               Column("interval", "95 % interval"), Column("direction", "Direction"), Column("first", "Earliest"),
               Column("last", "Latest"), Column("p", "p", "p"))
    return Table(f"Changes of {history.metric.title}", columns, tuple(Row(
        {"at": history.points[change.index].name, "change": change.point.ratio.value - 1,
         "interval": interval_words(change), "direction": direction(change) or None,
         "first": history.points[change.first].name, "last": history.points[change.last].name, "p": change.point.p},
        entry) for change in history.changes))
