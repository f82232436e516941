"""Drives below one another, the best first: name, bar, interval and value of one metric in one row."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from .series_style import SeriesStyle
from .spec import HIGHLIGHTED, Axis, Datum, ScaledAxis, Spec, finish, if_highlighted, scale_axis, tooltip

TIED = "Drives joined by a bracket tie: the interval of their ratio includes 1, or they differ by less than 2 %."
_ROW_STEP = 26  # pixels
_BASE_OFFSET = 5  # pixels of two bars of a row from its middle
_VALUE_ROOM = 104  # pixels at the right for values and brackets
_BRACKETS = (5, 0)  # pixels from the right edge; neighboring brackets alternate
_WHISKER_COLOR: Spec = {"expr": "text"}


@dataclass(frozen=True)
class Bar:
    """entry: key of the drive. low, high: of the whisker, a thick one for an interval. order: place of the drive, from
    0. rank: drives that share a rank tie, None without ranks. text: the value as printed. spread: the whisker as text.
    base: a value to compare with, as a second bar above.
    """

    entry: str
    value: float
    order: int
    low: float | None = None
    high: float | None = None
    is_interval: bool = False
    rank: int | None = None
    text: str = ""
    spread: str = ""
    base: float | None = None


def bar_rows(description: str, bars: Sequence[Bar], style: SeriesStyle, axis: Axis) -> Spec | None:
    """None without bars. A linear axis begins at zero. On a logarithmic axis, where a bar has no zero to begin at, a
    point on a thin line replaces it."""
    if not bars:
        return None
    bounds = [value for bar in bars for value in (bar.value, bar.low, bar.high, bar.base)
              if value is not None]
    across = scale_axis(axis, bounds, is_x=True)
    x = across.encode("value", grid=True, domain=False, ticks=False, labelFlush=False,
                      title=f"{across.title}, logarithmic" if across.is_log else across.title)
    x["scale"] |= {"domain": [across.low, across.high] if across.is_log else [min(0.0, across.low), across.high],
                   "range": [0, {"expr": f"max(40, width - {_VALUE_ROOM})"}]}
    y = {**style.rows(labelFontWeight={"condition": {"test": "datum.value === highlight", "value": 700}, "value": 400}),
         "scale": {"paddingInner": 0, "paddingOuter": 0}}
    color = if_highlighted({"expr": "accent"}, {"expr": "plain"})
    fields = tooltip(("name", "drive"), ("text", axis.title),
                     *((("spread", "spread"),) if any(bar.spread for bar in bars) else ()))
    has_bases = any(bar.base is not None for bar in bars)
    shape: Spec = {"type": "bar", "height": 2 if across.is_log else 13}
    layers: list[Spec] = []
    if has_bases:
        shape = {"type": "bar", "height": 9, "yOffset": _BASE_OFFSET}
        layers.append({"mark": {"type": "bar", "height": 9, "yOffset": -_BASE_OFFSET, "color": {"expr": "muted"},
                                "opacity": 0.5},
                       "encoding": {"y": y, "x": {**x, "field": "base"}, "x2": {"value": 0}, "tooltip": fields}})
    layers += [{"mark": shape, "encoding": {"y": y, "x": x, "x2": {"value": 0}, "color": color,
                                                       "tooltip": fields}}]
    if across.is_log:
        layers.append({"mark": {"type": "point", "filled": True, "opacity": 1, "size": 90},
                       "encoding": {"y": y, "x": x, "color": color, "tooltip": fields}})
    if any(bar.low is not None for bar in bars):
        whisker: Spec = {"type": "rule", "strokeCap": "butt", "color": _WHISKER_COLOR}
        if has_bases:
            whisker |= {"yOffset": _BASE_OFFSET, "y2Offset": _BASE_OFFSET}
        layers.append({"mark": whisker, "encoding": {
            "y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"},
            "strokeWidth": {"field": "thick", "type": "quantitative", "scale": None}}})
    edge = f"width - {_BRACKETS[0] + 9}"
    layers.append({"mark": {"type": "text", "align": "right", "baseline": "middle",
                            "fontWeight": {"expr": f"{HIGHLIGHTED} ? 700 : 500"}},
                   "encoding": {"y": y, "x": {"value": {"expr": edge}}, "text": {"field": "text", "type": "nominal"}}})
    layers += _brackets(y, bars)
    return finish(description, height={"step": _ROW_STEP}, data={"values": _rows(bars, across)},
                  transform=style.transform[:1], layer=layers)


def _brackets(y: Spec, bars: Sequence[Bar]) -> list[Spec]:
    """A vertical line beside the drives of each tie, drawn row by row, so that it survives a filter."""
    if not any(bracket is not None for bracket in _brackets_of(bars)):
        return []
    layers = []
    for index, inset in enumerate(_BRACKETS):
        at = {"value": {"expr": f"width - {inset}"}}
        encoding = {"field": f"bracket_{index}", "type": "quantitative", "scale": None}
        layers.append({"mark": {"type": "rule", "color": {"expr": "muted"}, "strokeWidth": 1.5}, "encoding": {
            "x": at, "y": {**y, "bandPosition": 0}, "y2": {"field": "entry", "bandPosition": 1}, "opacity": encoding}})
    return layers


def _brackets_of(bars: Sequence[Bar]) -> list[int | None]:
    """For each bar the position of its bracket, of _BRACKETS; None without a tie."""
    brackets: list[int | None] = []
    ties = 0
    for rank, group in groupby(bars, key=lambda bar: bar.rank):
        size = len(list(group))
        tied = rank is not None and size > 1
        brackets += [ties % 2 if tied else None] * size
        ties += tied
    return brackets


def _rows(bars: Sequence[Bar], across: ScaledAxis) -> list[Datum]:
    rows = []
    for bar, bracket in zip(bars, _brackets_of(bars), strict=True):
        value = bar.value / across.divisor
        rows.append({"entry": bar.entry, "order": bar.order, "value": value,
                     "low": value if bar.low is None else bar.low / across.divisor,
                     "high": value if bar.high is None else bar.high / across.divisor,
                     "thick": 4 if bar.is_interval else 1.5, "text": bar.text, "spread": bar.spread,
                     **({} if bar.base is None else {"base": bar.base / across.divisor}),
                     **{f"bracket_{index}": int(bracket == index) for index in range(len(_BRACKETS))}})
    return rows
