"""A row for each drive on one time axis, and a strip below that zooms all rows."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from .spec import Datum, Spec, finish

MOST_POINTS = 2900  # of all rows of a chart and the strip; the outline of the reads has as many
NARROW, NARROW_PIXELS = "narrow", 420  # a param: whether rows are below this width; captions beside titles are left out
_CAPTION_ROOM = 80  # pixels: in lower rows the caption stands beside the title
_AXIS: Spec = {"minExtent": 46, "maxExtent": 46, "tickCount": 3}
_STEP: Spec = {"interpolate": "step-after", "clip": True}


@dataclass(frozen=True)
class Panel:
    """A row. steps: t (s), and either `read` and `write` or `rate`, in the unit of the chart; a value holds until the
    next t. temperature: (s, degrees Celsius). begin, until: in s."""

    entry: str
    title: str
    steps: Sequence[Datum]
    until: float
    begin: float = 0
    caption: str = ""
    temperature: Sequence[tuple[float, float]] = ()


def extremes(xs: Sequence[float | None], ys: Sequence[float | None], most: int) -> list[tuple[float, float]]:
    """At most `most` (x, y): of each stretch its lowest and its highest, so that no peak and no gap is lost."""
    pairs = [(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None]
    if len(pairs) <= most:
        return pairs
    parts, points = max(1, most // 2), []
    for part in range(parts):
        stretch = pairs[part * len(pairs) // parts:(part + 1) * len(pairs) // parts]
        points += sorted({min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])})
    return points


def coarser(xs: Sequence[float], ys: Sequence[float], most: int) -> list[tuple[float, float]]:
    """At most `most` (x, y) of bins: neighbors become one with their mean, so that the area stays."""
    together = max(1, -(-len(ys) // most))
    return [(xs[start], sum(ys[start:start + together]) / len(ys[start:start + together]))
            for start in range(0, len(ys), together)]


def time_rows(description: str, panels: Sequence[Panel], unit: str) -> Spec | None:
    """All rows on one scale. unit: title of the y axis. None without panels."""
    panels = [panel for panel in panels if panel.steps]
    if not panels:
        return None
    keys = [key for key in ("write", "read", "rate") if key in panels[0].steps[0]]
    top = max((row[key] for panel in panels for row in panel.steps for key in keys), default=0) or 1
    degrees = [value for panel in panels for _, value in panel.temperature]
    begin, until = min(panel.begin for panel in panels), max(panel.until for panel in panels)
    height = row_height(len(panels))
    views: list[Spec] = []
    for panel in panels:
        data, lanes = _lanes(panel, keys, top, unit, {"entry": panel.entry})
        warm = [_temperature(panel, degrees, "plain" if "read" in keys else "reads")] if degrees else []
        views.append({"height": height, "title": row_title(panel.entry, panel.title, panel.caption, height),
                      "data": data, "layer": [{"layer": lanes}, *warm], "resolve": {"scale": {"y": "independent"}}})
    # The strip is of no drive in particular: its data has no `entry`.
    data, strip = _lanes(max(panels, key=lambda panel: panel.until), keys, top, None, {})
    return zoomed_rows(description, views, {"data": data, "layer": strip}, begin, until)


def row_height(rows: int) -> int:
    """Pixels of each of so many rows."""
    return {1: 160}.get(rows, 110 if rows <= 4 else 72 if rows <= 8 else 52)


def zoomed_rows(description: str, rows: Sequence[Spec], strip: Spec, begin: float, until: float) -> Spec:
    """Rows with one time axis below them, and the strip that zooms them all. rows: with height and without x. strip: a
    view with layers, without entries. begin, until: in s."""
    visible = {"domainMin": {"expr": f"isValid(zoom.t) ? zoom.t[0] : {begin}"},
               "domainMax": {"expr": f"isValid(zoom.t) ? zoom.t[1] : {until}"}, "nice": False, "zero": False}
    across = _time(visible, grid=False, labels=False, ticks=False)
    views = [{**row, "encoding": {**row.get("encoding", {}), "x": across}} for row in rows]
    # The axis has a view of its own: it stays whichever rows are filtered out.
    views.append({"height": 1, "data": {"values": [{"t": begin}, {"t": until}]},
                  "mark": {"type": "point", "opacity": 0},
                  "encoding": {"x": {**_time(visible, grid=False), "title": "seconds"}}})
    first, *layers = strip["layer"]
    select = {"type": "interval", "encodings": ["x"], "mark": {"fillOpacity": 0.15}}
    views.append({**strip, "height": 34, "layer": [{**first, "params": [{"name": "zoom", "select": select}]}, *layers],
                  "encoding": {"x": _time({"domain": [begin, until], "nice": False}, grid=False)}})
    spec = finish(description, vconcat=views, spacing=12 if rows[0]["height"] > _CAPTION_ROOM else 6)
    return {**spec, "params": [*spec["params"], {"name": NARROW, "value": False}]}


def _time(scale: Spec, **axis: bool) -> Spec:
    return {"field": "t", "type": "quantitative", "title": None, "scale": scale, "axis": axis}


def _lanes(panel: Panel, keys: Sequence[str], top: float, unit: str | None,
           entry: Datum) -> tuple[Spec, list[Spec]]:
    """(data, layers): reads as an area in front of writes, or the rate as a line. unit: None for the strip, which has
    no y axis. entry: part of each datum."""
    up = {"type": "quantitative", "title": unit, "scale": {"domain": [0, top * 1.04], "nice": False},
          "axis": {**_AXIS, "format": "~s" if top >= 1e5 else ",~r" if top >= 1e-3 else "~e"} if unit else None}
    last = panel.steps[-1]
    steps = [*panel.steps, *([{**last, "t": panel.until}] if last["t"] < panel.until else [])]
    data = {"values": [{**entry, **row} for row in steps]}
    if "rate" in keys:
        return data, [{"mark": {"type": "line", "style": "near", "strokeWidth": 1.3, **_STEP},
                       "encoding": {"y": {"field": "rate", **up}}}]
    areas: list[Spec] = [{"mark": {"type": "area", "style": f"{key}s", "opacity": opacity, **_STEP},
                          "encoding": {"y": {"field": key, **up}}}
                         for key, opacity in (("write", 0.55), ("read", 0.35))]
    outline = {"values": [{**entry, **row} for row in _outline(steps)]}
    return data, [*areas, {"data": outline, "mark": {"type": "line", "style": "reads", "strokeWidth": 1.4, **_STEP},
                           "encoding": {"y": {"field": "read", **up}}}]


def _outline(steps: Sequence[Datum]) -> list[Datum]:
    """The outline of the reads, without a line along zero, which would look like reads."""
    rows: list[Datum] = []
    is_reading = False
    for row in steps:
        if row["read"] and not is_reading:
            rows.append({"t": row["t"], "read": 0})
        if row["read"] or is_reading:
            rows.append({"t": row["t"], "read": row["read"]})
        if is_reading and not row["read"]:
            rows.append({"t": row["t"], "read": None})
        is_reading = bool(row["read"])
    return rows


def _temperature(panel: Panel, degrees: Sequence[float], style: str) -> Spec:
    """degrees: of all panels, for one scale."""
    scale = {"domain": [min(degrees) - 2, max(degrees) + 2], "nice": False, "zero": False}
    axis = {"orient": "right", "tickCount": 3, "grid": False, "minExtent": 34, "maxExtent": 34}
    return {"data": {"values": [{"entry": panel.entry, "t": t, "degrees": value} for t, value in panel.temperature]},
            "mark": {"type": "line", "style": style, "strokeDash": [5, 3], "strokeWidth": 1.6, "clip": True},
            "encoding": {"y": {"field": "degrees", "type": "quantitative", "title": "°C", "scale": scale,
                               "axis": axis}}}


def row_title(entry: str, name: str, caption: str | list[str], height: int) -> Spec:
    """The title of a row of this height: the name of the drive, and the caption below or its first line beside it."""
    caption = [caption] if isinstance(caption, str) else caption
    beside = f" · {caption[0]}" if any(caption) and height <= _CAPTION_ROOM else ""
    key, text, behind = (json.dumps(content, ensure_ascii=False) for content in (entry, name, beside))
    words = f"{text} + (highlight === {key} ? ', highlighted' : '') + ({NARROW} ? '' : {behind})"
    title: Spec = {"text": {"expr": words}, "anchor": "start",
                   "color": {"expr": f"highlight === {key} ? accent : text"}}
    if height <= _CAPTION_ROOM:
        return title | {"fontSize": 11.5, "offset": 3}
    return title | ({"subtitle": caption} if any(caption) else {})
