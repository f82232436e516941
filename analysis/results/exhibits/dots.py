"""Drives below one another, the best first: a dot for each part of a figure, joined; its interval as a whisker."""

from .drawing import MARKED, Apart, Axis, finished, scaled, tooltip

_ROW = 40
_DOWN = 9  # of the dots, below the names
_SHAPES = ["circle", "diamond", "square", "triangle-up", "triangle-right", "cross"]


def dots(description: str, rows: list[dict], apart: Apart, axis: Axis, parts: tuple[str, ...] = ("",), *,
         join: bool = True) -> dict | None:
    """rows: entry, part, value; low, high and is_interval where there is a whisker; told: what stands at the right of
    its drive, on one row of each. The drives come in the order of `order` of the rows, or else of the list.

    None where there is nothing to draw.
    """
    if not rows:
        return None
    reach = [row[key] for row in rows for key in ("value", "low", "high") if row.get(key) is not None]
    along = scaled(axis, reach, x=True)
    low = along.low if along.is_log else min(0.0, along.low)
    encoded = {**along.encoding, "scale": {**along.encoding["scale"], "domain": [
        low, along.high if along.is_log else low + (along.high - low) * 1.04]}}
    encoded["axis"] = {**encoded["axis"], "grid": True, "domain": False, "ticks": False}
    if along.is_log:
        encoded["axis"]["title"] = f"{encoded['axis']['title']}, logarithmic"
    ranks = {row["entry"]: row.get("rank") for row in rows}
    shared = sorted({rank for rank in ranks.values() if rank is not None and list(ranks.values()).count(rank) > 1})
    first, ends = {}, {}
    for row in rows:
        first.setdefault(row["entry"], id(row))
        ends.setdefault(row["entry"], []).append(row["value"] / along.by)
    values = []
    for row, plain in zip(apart.rows(rows), rows, strict=True):
        value, lead = row["value"] / along.by, first[row["entry"]] == id(plain)
        low, high = (value if row.get(key) is None else row[key] / along.by for key in ("low", "high"))
        values.append({
            "entry": row["entry"], "name": row["name"], "order": row.get("order", row["place"]), "part": row["part"],
            "value": value, "low": low, "high": high, "thick": 4 if row.get("is_interval") else 1.2,
            "from": min(ends[row["entry"]]) if lead else value, "to": max(ends[row["entry"]]) if lead else value,
            # Groups that tie lie on one shade; of two groups in a row the second is fainter.
            "band": (1, .5)[shared.index(row["rank"]) % 2] if lead and row.get("rank") in shared else 0,
            "head": row["name"] if lead else "", "told": row.get("told", "") if lead else "",
            "is": axis.text(row["value"]), "span": row.get("span", "")})
    y = {"field": "entry", "type": "nominal", "axis": None, "sort": {"field": "order", "op": "min"},
         "scale": {"paddingInner": 0, "paddingOuter": 0}}
    # The first layer has to have the rows' scale: it is what the height is told by.
    layers = [{"mark": {"type": "rect", "style": "band"}, "encoding": {
        "y": y, "x": {"value": 0}, "x2": {"value": "width"},
        "opacity": {"field": "band", "type": "quantitative", "scale": None}}}] if shared else []
    layers += [{"mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 2,
                        "limit": {"expr": "width - 120"}, "fontWeight": {"expr": f"{MARKED} ? 700 : 400"}},
               "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "head", "type": "nominal"}}}]
    if len(parts) == 1:
        # From the marked drive's row up and down. A layer without the rows' scale would take their step from them.
        layers += [{"mark": {"type": "rule", "style": "reference"}, "encoding": {
            "y": {**y, "bandPosition": 0.5}, "y2": {"value": end}, "x": {"field": "value", **encoded},
            "opacity": {"condition": {"test": MARKED, "value": 1}, "value": 0}}} for end in (0, "height")]
    if join and len(parts) > 1:
        layers.append({"mark": {"type": "rule", "strokeWidth": 2.5, "yOffset": _DOWN, "y2Offset": _DOWN,
                                "strokeCap": "butt"},
                       "encoding": {"y": y, "x": {"field": "from", **encoded}, "x2": {"field": "to"},
                                    "color": {"condition": {"test": MARKED, "value": {"expr": "accent"}},
                                              "value": {"expr": "other"}}}})
    if any(value["low"] != value["high"] for value in values):
        layers.append({"mark": {"type": "rule", "style": "spread", "yOffset": _DOWN, "y2Offset": _DOWN,
                                "strokeCap": "butt"},
                       "encoding": {"y": y, "x": {"field": "low", **encoded}, "x2": {"field": "high"},
                                    "strokeWidth": {"field": "thick", "type": "quantitative", "scale": None}}})
    told = tooltip(("name", "drive"), *((("part", "of"),) if len(parts) > 1 else ()), ("is", axis.title),
                   *((("span", "spread"),) if any(value["span"] for value in values) else ()))
    layers.append({"mark": {"type": "point", "filled": True, "opacity": 1, "yOffset": _DOWN,
                            "size": {"expr": f"{MARKED} ? 150 : 90"}},
                   "encoding": {"y": y, "x": {"field": "value", **encoded}, **_coloured(parts), "tooltip": told}})
    layers.append({"mark": {"type": "text", "align": "right", "baseline": "bottom", "dx": -2, "fontWeight": 600},
                   "encoding": {"y": y, "x": {"value": "width"}, "text": {"field": "told", "type": "nominal"}}})
    return finished(description, height={"step": _ROW}, data={"values": values}, layer=layers)


def _coloured(parts):
    if len(parts) < 2:
        return {"color": {"condition": {"test": MARKED, "value": {"expr": "accent"}}, "value": {"expr": "near"}}}
    legend = {"orient": "top", "title": None, "symbolOpacity": 1}
    base = {"field": "part", "type": "nominal", "legend": legend}
    return {"color": {**base, "scale": {"domain": list(parts)}},
            "shape": {**base, "scale": {"domain": list(parts), "range": _SHAPES[:len(parts)]}}}
