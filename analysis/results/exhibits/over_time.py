"""A row for each drive on one time axis, and a strip below that zooms all of them."""

import json

from .drawing import finished

MOST_POINTS = 3400  # of all rows of a chart, and some for the strip
_LOW = 80  # pixels: in a row that is lower than that the caption stands beside the title
_AXIS = {"minExtent": 46, "maxExtent": 46}


def reduced(xs: list, ys: list, most: int) -> list[tuple]:
    """At most so many (x, y): of each stretch its lowest and its highest, so that no peak and no gap is lost."""
    known = [(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None]
    if len(known) <= most:
        return known
    parts, kept = max(1, most // 2), []
    for part in range(parts):
        stretch = known[part * len(known) // parts:(part + 1) * len(known) // parts]
        kept += sorted({min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])})
    return kept


def coarser(xs: list, ys: list, most: int) -> list[tuple]:
    """At most so many (x, y) of bins: neighbours become one with their mean, so that the area stays."""
    together = max(1, -(-len(ys) // most))
    return [(xs[start], sum(ys[start:start + together]) / len(ys[start:start + together]))
            for start in range(0, len(ys), together)]


def reads_over_writes(description: str, panels: list[dict]) -> dict | None:
    """panels: entry, title, caption, and rows of t (s), read and write (MB/s), and where it all ends, `until`."""
    if not panels:
        return None
    top = max((row[key] for panel in panels for row in panel["rows"] for key in ("read", "write")), default=0) or 1
    until = max(panel["until"] for panel in panels)
    tall = 110 if len(panels) <= 4 else 72 if len(panels) <= 8 else 52
    scale = {"domain": [0, top * 1.04], "nice": False}

    def lanes(axis):
        up = {"type": "quantitative", "title": "MB/s" if axis else None, "scale": scale,
              "axis": {**_AXIS, "tickCount": 3, "format": ",~r"} if axis else None}
        shape = {"interpolate": "step-after", "clip": True}
        return [{"mark": {"type": "area", "style": "writes", "opacity": 0.55, **shape},
                 "encoding": {"y": {"field": "write", **up}}},
                {"mark": {"type": "area", "style": "reads", "opacity": 0.35, **shape},
                 "encoding": {"y": {"field": "read", **up}}},
                # No line along zero: it would look like something being read.
                {"mark": {"type": "line", "style": "reads", "strokeWidth": 1.4, **shape},
                 "encoding": {"y": {"field": "edge", **up}}}]

    def data(panel):
        rows = [{**row, "edge": row["read"] if row["read"] > 0 else None} for row in panel["rows"]]
        return [{"entry": panel["entry"], **row} for row in _closed(rows, panel["until"])]

    views = [_row(panel, {"values": data(panel)}, lanes(True), tall, index == len(panels) - 1, until)
             for index, panel in enumerate(panels)]
    return _zoomed(description, views, _strip(data(panels[0]), lanes(False), until))


def rate_and_temperature(description: str, panels: list[dict], title: str = "IOPS") -> dict | None:
    """panels: entry, title, caption, until, begin; rate and temperature: (t, value). Temperature has its own axis."""
    panels = [panel for panel in panels if panel["rate"]]
    if not panels:
        return None
    top = max(value for panel in panels for _, value in panel["rate"]) or 1
    degrees = [value for panel in panels for _, value in panel["temperature"]]
    begin, until = min(panel["begin"] for panel in panels), max(panel["until"] for panel in panels)
    tall = 130 if len(panels) <= 4 else 84 if len(panels) <= 8 else 60

    def lanes(axis):
        up = {"type": "quantitative", "title": title if axis else None,
              "scale": {"domain": [0, top * 1.05], "nice": False},
              "axis": {**_AXIS, "tickCount": 3, "format": "~s"} if axis else None}
        layers = [{"mark": {"type": "line", "style": "near", "interpolate": "step-after", "strokeWidth": 1.3,
                            "invalid": "filter", "clip": True},
                   "encoding": {"y": {"field": "rate", **up}}}]
        if degrees and axis:
            warm = {"type": "quantitative", "title": "°C", "scale": {
                "domain": [min(degrees) - 2, max(degrees) + 2], "nice": False, "zero": False},
                "axis": {"orient": "right", "tickCount": 3, "grid": False, "minExtent": 34, "maxExtent": 34}}
            layers.append({"mark": {"type": "line", "style": "reads", "strokeDash": [5, 3], "strokeWidth": 1.6,
                                    "invalid": "filter", "clip": True},
                           "encoding": {"y": {"field": "degrees", **warm}}})
        return layers

    def data(panel):
        rate = _closed([{"t": t, "rate": value} for t, value in panel["rate"]], panel["until"])
        return [{"entry": panel["entry"], **row} for row in
                [*rate, *({"t": t, "degrees": value} for t, value in panel["temperature"])]]

    views = [_row(panel, {"values": data(panel)}, lanes(True), tall, index == len(panels) - 1, until, begin,
                  {"resolve": {"scale": {"y": "independent"}}} if degrees else {})
             for index, panel in enumerate(panels)]
    return _zoomed(description, views, _strip(data(panels[0]), lanes(False), until, begin))


def _closed(rows, until):
    """With the last value once more where it ends: a step is drawn up to the next."""
    return [*rows, {**rows[-1], "t": until}] if rows and rows[-1]["t"] < until else rows


def _row(panel, data, layers, tall, last, until, begin=0, more=None):
    zoomed = {"domainMin": {"expr": f"isValid(zoom.t) ? zoom.t[0] : {begin}"},
              "domainMax": {"expr": f"isValid(zoom.t) ? zoom.t[1] : {until}"}, "nice": False, "zero": False}
    along = {"field": "t", "type": "quantitative", "title": "seconds" if last else None, "scale": zoomed,
             "axis": {"labels": last, "ticks": last, "grid": False}}
    caption = panel.get("caption")
    title = {"text": panel["title"], "color": {"expr": f"highlight === {json.dumps(panel['entry'])} ? accent : text"}}
    if caption and tall > _LOW:
        title["subtitle"] = caption
    elif caption:
        title |= {"text": f"{panel['title']} · {caption}", "fontSize": 11.5, "offset": 3}
    return {"data": data, "height": tall, "title": title, "encoding": {"x": along}, "layer": layers, **(more or {})}


def _strip(values, layers, until, begin=0):
    """All of the first row, to drag over. It is of no drive in particular, so it stays whoever is filtered out."""
    values = [{key: value for key, value in row.items() if key != "entry"} for row in values]
    brush = {"name": "zoom", "select": {"type": "interval", "encodings": ["x"], "mark": {"fillOpacity": 0.15}}}
    layers = [{**layers[0], "params": [brush]}, *layers[1:]]
    along = {"field": "t", "type": "quantitative", "title": "drag here to zoom all rows; double click to reset",
             "scale": {"domain": [begin, until], "nice": False}, "axis": {"grid": False}}
    return {"data": {"values": values}, "height": 34, "encoding": {"x": along}, "layer": layers}


def _zoomed(description, views, strip):
    return finished(description, fills=False, vconcat=[*views, strip], spacing=12)
