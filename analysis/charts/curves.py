"""Lines over something that was varied: the share of reads, the queue depth, the block size, a state."""

from collections.abc import Sequence

from .series_style import LINE_SYMBOLS, SeriesStyle
from .spec import OWN_SCALES, Axis, Datum, Point, Spec, finish, if_highlighted, scale_axis, tooltip
from .theme import DASHES

_HEIGHT = 250


def curves(description: str, points: Sequence[Point], style: SeriesStyle, x: Axis, y: Axis, *, is_stepped: bool = False,
           dots: bool = True, x_rule: float | None = None) -> Spec | None:
    """Curves as a whole chart; None without points. Parameters as of `curve_view`."""
    if not points:
        return None
    view = curve_view(points, style, x, y, is_stepped=is_stepped, dots=dots, x_rule=x_rule)
    return finish(description, height=_HEIGHT, **view)


def slope(description: str, points: Sequence[Point], style: SeriesStyle, names: tuple[str, ...],
          y: Axis) -> Spec | None:
    """From one named state to the next. points: x is a number in names."""
    return curves(description, points, style, Axis("", kind="names", names=names), y)


def curve_view(points: Sequence[Point], style: SeriesStyle, x: Axis, y: Axis, *, is_stepped: bool = False,
               dots: bool = True, x_rule: float | None = None, dash_lines: bool = False) -> Spec:
    """A view of curves, at least one point. is_stepped: a value holds until the next point. dots: mark each point.
    x_rule: where a reference line crosses. dash_lines: dashes distinguish the lines of a drive, and not drives."""
    style = style.limited_to((point.entry, point.line) for point in points)
    across = scale_axis(x, [point.x for point in points], is_x=True, room=style.label_room())
    up = scale_axis(y, [point.y for point in points])
    ringed = any(point.ring is not None for point in points)
    rows = _rows(points, across.divisor, up.divisor, across.high)
    if dots or ringed:
        rows = [{**row, "at": x.text(point.x), "is": y.text(point.y)} for row, point in zip(rows, points, strict=True)]
    line: Spec = {"type": "line", "clip": True, **({"interpolate": "step-after"} if is_stepped else {})}
    look = style.line()
    if dash_lines and not style.by_line:
        look = {"color": style.color(style.legend(LINE_SYMBOLS)), "strokeDash": {
            "field": "line", "type": "nominal", "legend": None, "scale": {
                "domain": list(style.lines), "range": DASHES[:len(style.lines)][::-1]}}}
    fields = tooltip(("name", "drive"), *((("line", "of"),) if len(style.lines) > 1 else ()),
                     ("at", x.title), ("is", y.title))
    layers: list[Spec] = [{"mark": {**line, "strokeWidth": 1.2 if style.is_muted else 1.8}, "encoding": look}]
    if style.is_muted:
        # Again on top, so that no gray line crosses a colored one, and no neighbor hides the highlighted drive.
        layers += [{"mark": {**line, "strokeWidth": 2.4}, "encoding": {"color": style.color(), "opacity": {
            "condition": {"test": f"datum.role === '{role}'", "value": 1}, "value": 0}}} for role in ("near", "this")]
    else:
        # Without dashes of drives: they close up in a broad line.
        layers.append({"mark": {**line, "strokeWidth": 3.2}, "encoding": {
            **({"strokeDash": {**look["strokeDash"], "legend": None}} if dash_lines else {}),
            "color": style.color(), "opacity": if_highlighted(1, 0)}})
    if dots:
        layers.append({"mark": {"type": "point", "filled": True, "opacity": 1}, "encoding": {
            **style.point(legend=False), "size": if_highlighted(70, 16 if style.is_muted else 44), "tooltip": fields}})
    if ringed:
        layers.append({"mark": {"type": "point", "filled": False, "size": 190, "strokeWidth": 2}, "encoding": {
            "color": style.color(), "tooltip": fields,
            "opacity": {"condition": {"test": "isValid(datum.ring)", "value": 1}, "value": 0}}})
        if style.by_line:
            layers.append({"mark": {"type": "text", "style": "limit-label", "dy": -15}, "encoding": {"text": {
                "condition": {"test": "isValid(datum.ring)", "field": "ring", "type": "nominal"}, "value": ""}}})
    layers += style.end_labels(rows, "y")
    if x_rule is not None:
        layers.append({"data": {"values": [{"x": x_rule}]},
                       "mark": {"type": "rule", "style": "limit", "strokeDash": [3, 3]},
                       "encoding": {"y": {"value": 0}, "y2": {"value": "height"}}})
    return {"data": {"values": rows}, "transform": style.transform, "layer": layers, "resolve": OWN_SCALES,
            "encoding": {"x": across.encode("x"), "y": up.encode("y"),
                         "detail": [{"field": "entry"}, {"field": "line"}]}}


def _rows(points: Sequence[Point], x_divisor: float, y_divisor: float, high: float) -> list[Datum]:
    """Data of the points. `end`: the last point of its line that the chart shows."""
    rows: list[Datum] = []
    last: dict[tuple[str, str], Datum] = {}
    for point in points:
        row: Datum = {"entry": point.entry, "line": point.line, "x": point.x / x_divisor, "y": point.y / y_divisor}
        if point.ring is not None:
            row["ring"] = point.ring
        rows.append(row)
        before = last.get((point.entry, point.line))
        if row["x"] <= high and (before is None or row["x"] >= before["x"]):
            last[point.entry, point.line] = row
    for row in last.values():
        row["end"] = True
    return rows
