"""Two metrics of each drive against each other: what it does, and what it takes for it."""

import json
from collections.abc import Sequence

from .series_style import SeriesStyle
from .spec import Axis, Datum, Point, Spec, finish, if_highlighted, scale_axis, tooltip
from .theme import SHAPES

_RIGHT = "scale('x', datum.x) > width / 2"


def scatter(description: str, points: Sequence[Point], style: SeriesStyle, x: Axis, y: Axis) -> Spec | None:
    """Drives with one point each have their names beside it; with several, color is the drive and shape the line.

    None without points.
    """
    if not points:
        return None
    style = style.limited_to((point.entry, point.line) for point in points)
    lines = list(dict.fromkeys(point.line for point in points))
    is_named = not style.by_line and len({point.entry for point in points}) == len(points)
    across, up = scale_axis(x, [point.x for point in points], is_x=True), scale_axis(y, [point.y for point in points])
    encode_x = across.encode("x", grid=True)
    if not across.is_log:
        encode_x["scale"]["domain"] = [0, across.high * 1.08]
    rows = [{"entry": point.entry, "line": point.line, "x": point.x / across.divisor, "y": point.y / up.divisor,
             "at": x.text(point.x), "is": y.text(point.y)} for point in points]
    look = style.point(legend=not is_named)
    if len(lines) > 1 and not style.by_line:
        symbols = {"symbolFillColor": {"expr": "muted"}, "symbolStrokeColor": {"expr": "muted"}, "symbolOpacity": 1}
        look = {"color": style.color(style.legend({"symbolOpacity": 1})), "shape": {
            "field": "line", "type": "nominal",
            "legend": {"orient": "bottom", "title": None, "columns": 4, **symbols},
            "scale": {"domain": lines, "range": [SHAPES[index % len(SHAPES)] for index in range(len(lines))]}}}
    fields = tooltip(("name", "drive"), *((("line", "of"),) if len(lines) > 1 else ()), ("at", x.title),
                     ("is", y.title))
    layers: list[Spec] = [{"mark": {"type": "point", "filled": True, "opacity": 0.95},
                           "encoding": {**look, "size": if_highlighted(190, 90), "tooltip": fields}}]
    if is_named or style.is_muted:
        layers.append({"mark": {"type": "text", "fontSize": 11, "align": {"expr": f"{_RIGHT} ? 'right' : 'left'"},
                                "dx": {"expr": f"{_RIGHT} ? -10 : 10"}, "dy": {"expr": _offset(rows)}}, "encoding": {
            "text": {"field": "name", "type": "nominal"}, "color": style.color() if style.is_muted else {
                "value": {"expr": "text"}}, "opacity": {"condition": {
                    "test": "datum.role !== 'other'" if style.is_muted else "true", "value": 1}, "value": 0}}})
    return finish(description, height=280, data={"values": rows}, transform=style.transform,
                  encoding={"x": encode_x, "y": up.encode("y")}, layer=layers)


def _offset(rows: Sequence[Datum]) -> str:
    """Names alternate in height in the order of x, so that close points have theirs apart."""
    order = [row["entry"] for row in sorted(rows, key=lambda row: (row["x"], row["y"]))]
    return f"(indexof({json.dumps(order, ensure_ascii=False)}, datum.entry) % 3 - 1) * 11"
