"""Lines over something that was varied: the share of reads, the queue depth, the block size, a state."""

from .drawing import MARKED, OWN_SCALES, Apart, Axis, finished, names, room_for, scaled, tooltip

_HEIGHT = 250


def curves(description: str, rows: list[dict], apart: Apart, x: Axis, y: Axis, *, step: bool = False,
           dots: bool = True) -> dict | None:
    """rows: entry, line, x, y; and `ring` (text) where a point is marked, `faint` where it is not to be relied on.

    None where there is nothing to draw.
    """
    if not rows:
        return None
    along = scaled(x, [row["x"] for row in rows], x=True, room=room_for(apart))
    up = scaled(y, [row["y"] for row in rows])
    ends = {}
    for index, row in enumerate(rows):
        key = (row["entry"], row["line"])
        if key not in ends or row["x"] >= rows[ends[key]]["x"]:
            ends[key] = index
    last = set(ends.values())
    values = [{**row, "x": row["x"] / along.by, "y": row["y"] / up.by, "at": x.text(row["x"]), "is": y.text(row["y"]),
               "end": "name" if apart.muted and index in last else ""} for index, row in enumerate(apart.rows(rows))]
    for value in values:
        value["end"] = value["name"] if value["end"] else ""
    encoding = {"x": {"field": "x", **along.encoding}, "y": {"field": "y", **up.encoding},
                "detail": [{"field": "entry"}, {"field": "line"}]}
    shape = {"interpolate": "step-after"} if step else {}
    line = {"type": "line", "clip": True, **shape}
    layers = [{"mark": {**line, "strokeWidth": 1.2 if apart.muted else 1.8}, "encoding": apart.encoding()}]
    told = tooltip(("name", "drive"), *((("line", "of"),) if apart.by_line and len(apart.lines) > 1 else ()),
                   ("at", x.title), ("is", y.title))
    if apart.muted:
        # Once more on top, so that no grey line crosses the marked one.
        layers.append({"mark": {**line, "strokeWidth": 2.4}, "encoding": {**apart.encoding(legend=False), "opacity": {
            "condition": {"test": "datum.role !== 'other'", "value": 1}, "value": 0}}})
        layers += names(values, "y", "end")
    else:
        layers.append({"mark": {**line, "strokeWidth": 3.2}, "encoding": {
            "color": apart.encoding(legend=False)["color"],  # no dashes: they close up in a broad line
            "opacity": {"condition": {"test": MARKED, "value": 1}, "value": 0}}})
    if dots:
        size = {"condition": {"test": MARKED, "value": 70}, "value": 16 if apart.muted else 44}
        layers.append({"mark": {"type": "point", "filled": True, "opacity": 1},
                       "encoding": {**apart.encoding("point", legend=False), "size": size, "tooltip": told}})
    if any("ring" in row for row in rows):
        for value in values:
            value.setdefault("ring", "")
        layers.append({"mark": {"type": "point", "filled": False, "size": 190, "strokeWidth": 2},
                       "encoding": {**apart.encoding("point", shapes=False, legend=False), "tooltip": told, "opacity": {
                           "condition": {"test": "datum.ring !== ''", "value": 1}, "value": 0}}})
        if apart.by_line:
            layers.append({"mark": {"type": "text", "style": "limit-label", "dy": -15},
                           "encoding": {"text": {"field": "ring", "type": "nominal"}}})
    return finished(description, height=_HEIGHT, data={"values": values}, transform=apart.transform, encoding=encoding,
                    layer=layers, resolve=OWN_SCALES)


def slope(description: str, rows: list[dict], apart: Apart, names: tuple[str, ...], y: Axis) -> dict | None:
    """From one state to another: rows: entry, x (number in names), y."""
    return curves(description, [{"line": "", **row} for row in rows], apart, Axis("", kind="names", names=names), y)
