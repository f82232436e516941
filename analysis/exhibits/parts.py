"""What charts share: how a specification is finished, how one drive is marked, what happens with a part of the drives.

Specifications are written as plain Vega-Lite: no layer filters its rows while it is drawn, since a layer that is left
without rows has no extent, and the browser's console says so. What a layer shows is decided here, in Python.
"""

import json

from ..theme import DASHES, SHAPES

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
MOST_ROWS = 400  # of a table that a page lists in full
MOST_HUES = 8  # more lines than hues that the eye tells apart: then they are muted but for the marked one
TIME_LABEL = "".join(f"datum.value >= {scale} ? format(datum.value / {scale}, '~r') + ' {unit}' : "
                     for scale, unit in (("1e9", "s"), ("1e6", "ms"), ("1e3", "µs"))) + "datum.value + ' ns'"


def finished(description: str, *, height=None, fills: bool = True, params=(), **spec) -> dict:
    """A whole specification. height: pixels or {"step": pixels}. fills: its width is that of its place on the page;
    the rows of a concatenated chart are given theirs when they are drawn."""
    built = {"$schema": SCHEMA, "description": description, "params": [{"name": "highlight", "value": ""}, *params],
             **spec}
    if fills:
        built |= {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    if height is not None:
        built["height"] = height
    return built


def role(keys: list[str]) -> dict:
    """A transform: `role` of each row, which has `entry` and `place` (its number in `keys`, the order of the drives).

    The marked one is "this", its neighbours in the order "near". Where none is marked the first and the last are.
    """
    marked = f"indexof({json.dumps(keys, ensure_ascii=False)}, highlight)"
    return {"as": "role", "calculate":
            f"datum.entry === highlight ? 'this' : highlight === '' || {marked} < 0 ? "
            f"(datum.place === 0 || datum.place === {len(keys) - 1} ? 'near' : 'other') : "
            f"abs(datum.place - {marked}) === 1 ? 'near' : 'other'"}


_MARKED = "datum.entry === highlight"
MARKED_THIN = {"condition": {"test": _MARKED, "value": 1.8}, "value": 1.2}
MARKED_THICK = {"condition": {"test": _MARKED, "value": 3.4}, "value": 1.8}
ROLE_COLOUR = {"condition": [{"test": "datum.role === 'this'", "value": {"expr": "accent"}},
                             {"test": "datum.role === 'near'", "value": {"expr": "near"}}], "value": {"expr": "other"}}


def by_role(this, near, other) -> dict:
    """A value for each role, as an encoding."""
    return {"condition": [{"test": "datum.role === 'this'", "value": this},
                          {"test": "datum.role === 'near'", "value": near}], "value": other}


def hue(order: list[str], present: list[str]) -> dict:
    """Colour by entry, the same in all charts of a page, with a legend of those that are here."""
    return {"field": "entry", "type": "nominal", "title": None, "scale": {"domain": order},
            "legend": legend_of(order, present)}


def dash(order: list[str], present: list[str]) -> dict:
    """A dash by entry, beside its colour."""
    return {**hue(order, present), "scale": {"domain": order, "range": DASHES[:len(order)]}}


def shape(order: list[str], present: list[str]) -> dict:
    """A shape by entry, beside its colour."""
    return {**hue(order, present), "scale": {"domain": order, "range": SHAPES[:len(order)]}}


def legend_of(order: list[str], present: list[str]) -> dict:
    return {"orient": "top", "symbolStrokeWidth": 2, "symbolOpacity": 1,
            "values": [key for key in order if key in set(present)]}


def without(spec: dict, hidden: set[str]) -> dict:
    """The specification without the data of the entries that are hidden, and without the rows and legend symbols that
    this leaves empty. page.js does the same in the browser."""
    def walk(node):
        if isinstance(node, list):
            return [walk(each) for each in node]
        if not isinstance(node, dict):
            return node
        kept = {}
        for key, value in node.items():
            if key == "data" and isinstance(value, dict) and isinstance(value.get("values"), list):
                value = {**value, "values": [row for row in value["values"] if row.get("entry") not in hidden]}
            elif key in ("vconcat", "hconcat"):
                value = [walk(each) for each in value if not _emptied(each, hidden)]
            elif key == "legend" and isinstance(value, dict) and isinstance(value.get("values"), list):
                value = {**value, "values": [each for each in value["values"] if each not in hidden]}
            else:
                value = walk(value)
            kept[key] = value
        return kept

    return walk(spec) if hidden else spec


def _emptied(view, hidden):
    rows = ((view.get("data") or {}).get("values")) or []
    return bool(rows) and all(row.get("entry") in hidden for row in rows)


def marks(spec: dict | None) -> int:
    """How many data a specification carries."""
    if isinstance(spec, list):
        return sum(marks(each) for each in spec)
    if not isinstance(spec, dict):
        return 0
    own = (spec.get("data") or {}).get("values") if isinstance(spec.get("data"), dict) else None
    return len(own or []) + sum(marks(value) for key, value in spec.items() if key != "data")


def name_of(shown: dict) -> str:
    """The label of an entry of the document; one that failed its checks is marked wherever it is drawn."""
    return shown["label"] + (" (invalid)" if shown["verdict"]["level"] == "invalid" else "")


def tooltip(*fields) -> list[dict]:
    """(field, title) or (field, title, format) each; a format makes it a number."""
    return [{"field": field, "title": title, **({"type": "quantitative", "format": form[0]} if form else
                                                {"type": "nominal"})} for field, title, *form in fields]
