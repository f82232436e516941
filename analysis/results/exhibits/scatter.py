"""Two figures of each drive against each other: what it does, and what it takes for it."""

from ...theme import SHAPES
from .drawing import MARKED, Apart, Axis, finished, names, scaled, tooltip


def scatter(description: str, rows: list[dict], apart: Apart, x: Axis, y: Axis) -> dict | None:
    """rows: entry, line (what of the drive: a state, a mix), x, y. None where there is nothing to draw."""
    if not rows:
        return None
    along, up = scaled(x, [row["x"] for row in rows], x=True), scaled(y, [row["y"] for row in rows])
    lines = list(dict.fromkeys(row["line"] for row in rows))
    encoded = dict(along.encoding)
    if not along.is_log:
        encoded["scale"] = {**encoded["scale"], "domain": [0, along.high * (1.3 if apart.muted else 1.08)]}
    encoded["axis"] = {**encoded["axis"], "grid": True}
    values = [{**row, "x": row["x"] / along.by, "y": row["y"] / up.by, "at": x.text(row["x"]), "is": y.text(row["y"])}
              for row in apart.rows(rows)]
    told = tooltip(("name", "drive"), *((("line", "of"),) if len(lines) > 1 else ()), ("at", x.title), ("is", y.title))
    size = {"condition": {"test": MARKED, "value": 190}, "value": 90}
    look = apart.encoding("point")
    if len(lines) > 1 and not apart.by_line:
        # Colour tells the drive, shape what of it.
        look = {"color": apart.encoding("point", shapes=False)["color"], "shape": {
            "field": "line", "type": "nominal",
            "legend": {"orient": "bottom", "title": None, "symbolOpacity": 1, "columns": 4,
                       "symbolFillColor": {"expr": "muted"}, "symbolStrokeColor": {"expr": "muted"}},
            "scale": {"domain": lines, "range": [SHAPES[index % len(SHAPES)] for index in range(len(lines))]}}}
    layers = [{"mark": {"type": "point", "filled": True, "opacity": 0.95},
               "encoding": {**look, "size": size, "tooltip": told}}]
    if apart.muted:
        layers += names(values, "y", "name")
    return finished(description, height=280, data={"values": values}, transform=apart.transform,
                    encoding={"x": {"field": "x", **encoded}, "y": {"field": "y", **up.encoding}}, layer=layers)
