"""Two figures of each drive against each other: what it does, and what it takes for it."""

from .drawing import MARKED, Apart, Axis, finished, scaled, tooltip


def scatter(description: str, rows: list[dict], apart: Apart, x: Axis, y: Axis) -> dict | None:
    """rows: entry, line (what of the drive: a state, a mix), x, y. None where there is nothing to draw."""
    if not rows:
        return None
    along, up = scaled(x, [row["x"] for row in rows], x=True), scaled(y, [row["y"] for row in rows])
    encoded = dict(along.encoding)
    if not along.is_log:
        encoded["scale"] = {**encoded["scale"], "domain": [0, along.high * 1.08]}
    encoded["axis"] = {**encoded["axis"], "grid": True}
    values = [{**row, "x": row["x"] / along.by, "y": row["y"] / up.by, "at": x.text(row["x"]), "is": y.text(row["y"])}
              for row in apart.rows(rows)]
    lines = list(dict.fromkeys(row["line"] for row in rows))
    told = tooltip(("name", "drive"), *((("line", "of"),) if len(lines) > 1 else ()), ("at", x.title), ("is", y.title))
    size = {"condition": {"test": MARKED, "value": 190}, "value": 90}
    layers = [{"mark": {"type": "point", "filled": True, "opacity": 0.95},
               "encoding": {**apart.encoding("point"), "size": size, "tooltip": told}}]
    if apart.muted:
        layers.append({"mark": {"type": "text", "align": "left", "dx": 9, "limit": 150}, "encoding": {
            "text": {"condition": {"test": "datum.role !== 'other'", "field": "name", "type": "nominal"}, "value": ""},
            "color": {"condition": {"test": "datum.role === 'this'", "value": {"expr": "accent"}},
                      "value": {"expr": "near"}}}})
    elif len(lines) > 1 and not apart.by_line:
        layers.append({"mark": {"type": "text", "align": "left", "dx": 9, "style": "limit-label", "limit": 90},
                       "encoding": {"text": {"field": "line", "type": "nominal"}}})
    return finished(description, height=280, data={"values": values}, transform=apart.transform,
                    encoding={"x": {"field": "x", **encoded}, "y": {"field": "y", **up.encoding}}, layer=layers)
