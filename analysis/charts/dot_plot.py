"""Drives below one another, the best first: a dot for each part of a metric, and its interval as a whisker."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from blkreel.common.binning import grouped

from .series_style import SeriesStyle, legend_columns
from .spec import HIGHLIGHTED, Axis, Datum, ScaledAxis, Spec, finish, if_highlighted, scale_axis, tooltip
from .theme import SHAPES

_ROW_STEP = 40  # pixels
_OFFSET = 9  # of the dots, below the names
TIED = "Drives on one shade tie: the interval of their ratio includes 1, or they differ by less than 2 %."
_LEGEND: Spec = {"orient": "top", "title": None, "symbolOpacity": 1}
_WHISKER: Spec = {"type": "rule", "yOffset": _OFFSET, "y2Offset": _OFFSET, "strokeCap": "butt"}


@dataclass(frozen=True)
class Dot:
    """entry: key of the drive. part: which dot of the drive. low, high: of the whisker, a thick one for an interval.
    order: place of the drive, from 0. rank: drives that share one tie. text: at the right of the drive, from its first
    dot. spread: the whisker as text."""

    entry: str
    value: float
    order: int
    part: str = ""
    low: float | None = None
    high: float | None = None
    is_interval: bool = False
    rank: int | None = None
    text: str = ""
    spread: str = ""


def dot_plot(description: str, dots: Sequence[Dot], style: SeriesStyle, axis: Axis,
             parts: Sequence[str] = ("",)) -> Spec | None:
    """parts: in the order of their colors; the dots of a drive with several are joined. None without dots."""
    if not dots:
        return None
    bounds = [value for dot in dots for value in (dot.value, dot.low, dot.high) if value is not None]
    across = scale_axis(axis, bounds, is_x=True)
    x = across.encode("value", grid=True, domain=False, ticks=False,
                      **({"title": f"{across.title}, logarithmic"} if across.is_log else {}))
    x["scale"]["domain"] = [across.low, across.high] if across.is_log else [
        min(0.0, across.low), across.high + (across.high - min(0.0, across.low)) * 0.04]
    rows = _rows(dots, axis, across)
    y = {"field": "entry", "type": "nominal", "axis": None, "sort": {"field": "order", "op": "min"},
         "scale": {"paddingInner": 0, "paddingOuter": 0}}
    layers: list[Spec] = []
    if any(row["band"] for row in rows):
        layers.append({"mark": {"type": "rect", "style": "band"}, "encoding": {
            "y": y, "x": {"value": 0}, "x2": {"value": "width"},
            "opacity": {"field": "band", "type": "quantitative", "scale": None}}})
    layers.append({"mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 2,
                            "limit": {"expr": "width - 120"}, "fontWeight": {"expr": f"{HIGHLIGHTED} ? 700 : 400"}},
                   "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "head", "type": "nominal"}}})
    if len(parts) == 1:
        # From the marked drive's row up and down. Only a layer with the scale of the rows leaves their height alone.
        layers += [{"mark": {"type": "rule", "style": "reference"}, "encoding": {
            "y": {**y, "bandPosition": 0.5}, "y2": {"value": end}, "x": x, "opacity": if_highlighted(1, 0)}}
            for end in (0, "height")]
    else:
        layers.append({"mark": {**_WHISKER, "strokeWidth": 2.5}, "encoding": {
            "y": y, "x": {**x, "field": "from"}, "x2": {"field": "to"},
            "color": if_highlighted({"expr": "accent"}, {"expr": "other"})}})
    if any(row["low"] != row["high"] for row in rows):
        layers.append({"mark": {**_WHISKER, "style": "spread"}, "encoding": {
            "y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"},
            "strokeWidth": {"field": "thick", "type": "quantitative", "scale": None}}})
    fields = tooltip(("name", "drive"), *((("part", "of"),) if len(parts) > 1 else ()), ("is", axis.title),
                     *((("spread", "spread"),) if any(row["spread"] for row in rows) else ()))
    layers += [
        {"mark": {"type": "point", "style": "highlight", "filled": False, "strokeWidth": 2, "size": 260,
                  "yOffset": _OFFSET}, "encoding": {"y": y, "x": x, "opacity": if_highlighted(1, 0)}},
        {"mark": {"type": "point", "filled": True, "opacity": 1, "yOffset": _OFFSET, "size": 95}, "encoding": {
            "y": y, "x": x, **_color(parts), "tooltip": fields}}]
    # The text has a rim in the color of the page, because the reference line may pass through it.
    layers += [{"mark": {"type": "text", "align": "right", "baseline": "bottom", "dx": -2, "fontWeight": 600, **rim},
                "encoding": {"y": y, "x": {"value": "width"}, "text": {"field": "text", "type": "nominal"}}}
               for rim in ({"stroke": {"expr": "page"}, "strokeWidth": 4}, {})]
    return finish(description, height={"step": _ROW_STEP}, data={"values": rows}, transform=style.transform[:1] + [
        {"as": "head", "calculate": "datum.lead ? datum.name : ''"}], layer=layers)


def _rows(dots: Sequence[Dot], axis: Axis, across: ScaledAxis) -> list[Datum]:
    values = grouped((dot.entry, dot.value / across.divisor) for dot in dots)
    drives_of = Counter(dot.rank for dot in {dot.entry: dot for dot in dots}.values() if dot.rank is not None)
    shared = sorted(rank for rank, drives in drives_of.items() if drives > 1)
    rows, entries = [], set()
    for dot in dots:
        value, lead = dot.value / across.divisor, dot.entry not in entries
        entries.add(dot.entry)
        rows.append({
            "entry": dot.entry, "order": dot.order, "part": dot.part, "lead": lead, "value": value,
            "low": value if dot.low is None else dot.low / across.divisor,
            "high": value if dot.high is None else dot.high / across.divisor,
            "thick": 4 if dot.is_interval else 1.2,
            "from": min(values[dot.entry]) if lead else value, "to": max(values[dot.entry]) if lead else value,
            # Drives that tie lie on one shade; of two such groups in a row the second is fainter.
            "band": (1, .5)[shared.index(dot.rank) % 2] if lead and dot.rank in shared else 0,
            "text": dot.text if lead else "", "is": axis.text(dot.value), "spread": dot.spread})
    return rows


def _color(parts: Sequence[str]) -> Spec:
    if len(parts) > 1:
        scale = {"domain": list(parts)}
        base = {"field": "part", "type": "nominal", "legend": {**_LEGEND, **legend_columns(parts)}}
        return {"color": {**base, "scale": scale}, "shape": {**base, "scale": {**scale, "range": SHAPES[:len(parts)]}}}
    return {"color": if_highlighted({"expr": "accent"}, {"expr": "near"})}
