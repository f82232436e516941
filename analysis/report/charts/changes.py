"""Two drives: the change of every metric with its interval, the largest effect first."""

from collections.abc import Sequence

from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.spec import Axis, Datum, Spec, finish, scale_axis, tooltip
from blkreel.analysis.report.answer import Change, apart, changes, noun, one_a_question, span, two_drives
from blkreel.analysis.report.columns import headline_of
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.common.units import counted

_ROW_STEP = 30  # pixels
_TEXT_ROOM = 210  # pixels at the right for the change in words
_NARROW_TEXT_ROOM = 130  # without the values
_IS_NARROW = "width < 400"
WELCH = "95 % Welch interval of the ratio − 1, on ln over runs"
_RATIO = Axis("ratio", "×", "log")


def change_rows(section: Datum, id_: str, under_test: str | None) -> Chart | None:
    """section: of a document, with two entries. None where they have no metric in common."""
    base, other = two_drives(section, under_test)
    compared = changes(section, base, other, one_a_question([
        metric for metric in headline_of([base, other]) if metric.better]))
    if not compared:
        return None
    labels = base["label"], other["label"]
    few = min(base["n"], other["n"])
    notes = () if few >= ENOUGH_RUNS else (
        f"{counted(few, 'run')} of a drive: no interval, so no change is supported. {ENOUGH_RUNS} runs of "
        "each are needed.",)
    return Chart(id_, f"{labels[1]} against {labels[0]}", _table(compared, base, other), _spec(compared, labels),
                 text=f"Each metric on {labels[1]} divided by the same on {labels[0]}, the largest effect first.",
                 notes=notes, wide=True)


def judged(change: Change) -> str:
    """better, worse, unchanged (the interval is within what counts as no difference) or not shown."""
    if change.differ is None:
        return "not supported"
    if change.differ:
        return "better" if (change.ratio > 1) == (change.metric.better == "higher") else "worse"
    return "unchanged" if change.is_unchanged else "no difference shown"


def _spec(compared: Sequence[Change], labels: tuple[str, str]) -> Spec:
    bounds = [value for change in compared for value in (change.ratio, change.low, change.high) if value]
    across = scale_axis(_RATIO, [*bounds, min(1 / 1.1, *bounds), max(1.1, *bounds)], is_x=True)
    x = across.encode("ratio", grid=True, domain=False, ticks=False, labelOverlap="greedy",
                      title=f"{labels[1]} / {labels[0]}, logarithmic")
    x["scale"]["range"] = [0, {"expr": f"max(60, width - ({_IS_NARROW} ? {_NARROW_TEXT_ROOM} : {_TEXT_ROOM}))"}]
    y: Spec = {"field": "metric", "type": "nominal", "sort": {"field": "order", "op": "min"},
               "axis": {"title": None, "domain": False, "ticks": False, "labelFontSize": 12, "labelLimit": 200,
                        "minExtent": 130}}
    rows = [{"entry": labels[1], "metric": noun(change.metric), "order": order, "ratio": change.ratio,
             "low": change.low or change.ratio,
             "high": change.high or change.ratio, "one": 1, "text": words(change), "short": words(change, False),
             "is": judged(change), "values": span(change.metric, change.base, change.other)}
            for order, change in enumerate(compared)]
    color = {"field": "is", "type": "nominal", "legend": None, "scale": {
        "domain": ["better", "worse", "unchanged", "no difference shown", "not supported"],
        "range": [{"expr": ink} for ink in ("better", "worse", "other", "other", "other")]}}
    fields = tooltip(("metric", "metric"), ("values", "values"), ("text", "change"), ("is", "verdict"))
    return finish("Change of each metric, the largest first", height={"step": _ROW_STEP}, data={"values": rows}, layer=[
        {"mark": {"type": "rule", "style": "limit"}, "encoding": {"x": {**x, "field": "one"}}},
        {"mark": {"type": "rule", "strokeWidth": 4, "strokeCap": "butt"}, "encoding": {
            "y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": color, "tooltip": fields}},
        {"mark": {"type": "point", "filled": True, "size": 80, "opacity": 1}, "encoding": {
            "y": y, "x": x, "color": color, "tooltip": fields}},
        {"mark": {"type": "text", "align": "right", "baseline": "middle",
                  "text": {"expr": f"{_IS_NARROW} ? datum.short : datum.text"}},
         "encoding": {"y": y, "x": {"value": {"expr": "width"}}}}])


def words(change: Change, has_values: bool = True) -> str:
    """The change as it stands beside a row, and the values where there is room."""
    if change.differ is False:
        return judged(change)
    if not has_values:
        return apart(change.ratio)
    return f"{apart(change.ratio)} ({span(change.metric, change.base, change.other)})"


def _table(compared: Sequence[Change], base: Datum, other: Datum) -> Table:
    columns = (Column("metric", "Metric"), Column("base", base["label"]), Column("other", other["label"]),
               Column("change", "Change", "change", formula="ratio of the two − 1"),
               Column("low", "Interval, low", "change", formula=WELCH),
               Column("high", "Interval, high", "change", formula=WELCH),
               Column("judged", "Verdict"))
    rows = []
    for change in compared:
        why = {} if change.low is not None else dict.fromkeys(("low", "high"), change.why or "too few runs")
        text = change.metric.unit.text
        rows.append(Row({"metric": change.metric.title, "base": text(change.base), "other": text(change.other),
                         "change": change.ratio - 1, "low": None if change.low is None else change.low - 1,
                         "high": None if change.high is None else change.high - 1, "judged": judged(change)},
                        None, why))
    return Table(f"Metrics of {other['label']} relative to {base['label']}", columns, tuple(rows))
