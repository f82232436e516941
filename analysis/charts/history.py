"""A metric in order of time: a dot for each night or version, a line for each level, and where it stepped."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from .spec import Axis, Datum, Spec, finish, scale_axis, tooltip

_HEIGHT = 300
_MARGIN = 0.12  # of the range of the values, above for the changes and below
_DATE_TICKS, _NAME_TICKS = 8, 40
_MOST_LETTERS = 90  # of all names side by side
_SECONDS_A_DAY = 86_400


@dataclass(frozen=True)
class Dot:
    """name: its date (ISO 8601) or version. low, high: range of its runs; None of one run. note: for the tooltip."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True)
class LevelLine:
    """first, last: numbers of dots. text: the value as printed."""

    first: int
    last: int
    value: float
    text: str


@dataclass(frozen=True)
class Step:
    """Before the dot `index`; first, last: dots before which it may have been instead. worse: None without a
    direction."""

    index: int
    first: int
    last: int
    text: str
    worse: bool | None = None


def history_chart(description: str, entry: str, dots: Sequence[Dot], levels: Sequence[LevelLine],
                  steps: Sequence[Step], axis: Axis, *, by_date: bool) -> Spec | None:
    """None without dots. The y axis begins near the lowest value, not at zero: steps of a few percent are the subject.
    by_date: dots stand at their dates, else side by side."""
    if not dots:
        return None
    places = [_day(dot.name) for dot in dots] if by_date else [float(index) for index in range(len(dots))]
    bounds = [value for dot in dots for value in (dot.value, dot.low, dot.high) if value is not None]
    margin = _MARGIN * ((max(bounds) - min(bounds)) or abs(max(bounds)) or 1)
    up = scale_axis(Axis(axis.title, axis.unit, domain=(min(bounds) - margin, max(bounds) + margin)), bounds)
    low, high = min(places) - 0.5, max(places) + 0.5
    across = {"field": "x", "type": "quantitative", "axis": _ticks([dot.name for dot in dots], places, by_date),
              "scale": {"domain": [low, high], "nice": False, "zero": False}}
    y = up.encode("y")
    y["scale"] = {**y["scale"], "zero": False}

    def data(rows: list[Datum]) -> Spec:
        return {"values": [{"entry": entry, **row} for row in rows]}

    layers = _step_layers(steps, entry, places, across)
    if any(dot.low is not None for dot in dots):
        layers.append({"data": data([{"x": place, "y": dot.low / up.divisor, "y2": dot.high / up.divisor}
                                     for place, dot in zip(places, dots, strict=True)
                                     if dot.low is not None and dot.high is not None]),
                       "mark": {"type": "rule", "strokeWidth": 1, "opacity": 0.45, "color": {"expr": "plain"}},
                       "encoding": {"x": across, "y": y, "y2": {"field": "y2"}}})
    layers.append({"data": data([{"x": place, "y": dot.value / up.divisor, "at": dot.name, "is": axis.text(dot.value),
                                  "note": dot.note} for place, dot in zip(places, dots, strict=True)]),
                   "mark": {"type": "point", "filled": True, "opacity": 1, "size": 26, "color": {"expr": "plain"}},
                   "encoding": {"x": across, "y": y, "tooltip": tooltip(
                       ("at", "date" if by_date else "version"), ("is", axis.title), ("note", "runs"))}})
    lines = data([{"x": places[level.first] - 0.4, "x2": places[level.last] + 0.4, "y": level.value / up.divisor,
                   "text": level.text, "end": places[level.last] + 0.4} for level in levels])
    layers.append({"data": lines, "mark": {"type": "rule", "strokeWidth": 2.6, "color": {"expr": "near"}},
                   "encoding": {"x": across, "x2": {"field": "x2"}, "y": y}})
    text = {"text": {"field": "text", "type": "nominal"}, "color": {"value": {"expr": "near"}}, "y": y,
            "x": {**across, "field": "end"}}
    mark: Spec = {"type": "text", "align": "right", "baseline": "bottom", "dy": -6, "fontWeight": 600}
    behind: Spec = {**mark, "stroke": {"expr": "page"}, "strokeWidth": 5, "strokeJoin": "round"}
    layers += [{"data": lines, "encoding": text, "mark": behind}, {"data": lines, "encoding": text, "mark": mark}]
    return finish(description, height=_HEIGHT, layer=layers)


def _step_layers(steps: Sequence[Step], entry: str, places: Sequence[float], across: Spec) -> list[Spec]:
    """A band where a step may have been, a line where it most likely was, and its size above."""
    halfway = [(before + place) / 2 for before, place in zip([places[0], *places], places, strict=False)]
    layers: list[Spec] = []
    bands = [{"entry": entry, "x": halfway[step.first], "x2": halfway[step.last]}
             for step in steps if step.last > step.first]
    if bands:
        layers.append({"data": {"values": bands}, "mark": {"type": "rect", "style": "band"}, "encoding": {
            "x": across, "x2": {"field": "x2"}, "y": {"value": 0}, "y2": {"value": "height"}}})
    for worse in (True, False, None):
        rows = [{"entry": entry, "x": halfway[step.index], "text": step.text} for step in steps if step.worse is worse]
        if not rows:
            continue
        color: Spec = {"expr": "muted" if worse is None else "worse" if worse else "better"}
        top = {"x": across, "y": {"value": 0}}
        layers += [{"data": {"values": rows}, "encoding": {**top, "y2": {"value": "height"}}, "mark": {
                       "type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.4, "color": color}},
                   {"data": {"values": rows}, "encoding": {**top, "text": {"field": "text", "type": "nominal"}},
                    "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 5, "dy": 3, "fontWeight": 600,
                             "color": color}}]
    return layers


def _ticks(names: Sequence[str], places: Sequence[float], by_date: bool) -> Spec:
    ticks: Spec = {"title": None, "grid": False}
    if by_date:
        every = -(-len(places) // _DATE_TICKS)
        return {**ticks, "values": list(places[::every]), "labelOverlap": "greedy",
                "labelExpr": f"utcFormat(datum.value * {_SECONDS_A_DAY}000, '%Y-%m-%d')"}
    turned = {"labelAngle": -30} if sum(map(len, names)) > _MOST_LETTERS else {}
    labels = f"{json.dumps(list(names), ensure_ascii=False)}[datum.value]"
    return {**ticks, "values": list(places[:_NAME_TICKS]), "labelOverlap": "greedy", **turned, "labelExpr": labels}


def _day(name: str) -> float:
    """Days since 1970."""
    return datetime.fromisoformat(name).replace(tzinfo=UTC).timestamp() / _SECONDS_A_DAY
