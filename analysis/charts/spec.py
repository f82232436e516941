"""What every specification shares: its frame, the mark of the highlighted drive, tooltips, and less of its data.

A specification is plain Vega-Lite. It has all its domains from Python and no layer filters rows while it is drawn: a
layer that is left without rows has no extent, and the browser's console reports that.
"""

from collections.abc import Set
from typing import Any, NamedTuple

Spec = dict[str, Any]  # Vega-Lite, or a part of it
Datum = dict[str, Any]  # a row of inline data

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
HIGHLIGHTED = "datum.entry === highlight"
# Shared scales would share a legend, and its symbols would be the marks of all layers at once.
OWN_SCALES: Spec = {"scale": {channel: "independent" for channel in ("color", "strokeDash", "shape")}}


class Point(NamedTuple):
    """A point of a curve or a scatter plot. entry: key of its drive. line: which of the drive's lines. ring: text
    beside a ring around the point, None without a ring."""

    entry: str
    line: str
    x: float
    y: float
    ring: str | None = None


def finish(description: str, *, height: float | Spec | None = None, **parts: Any) -> Spec:
    """The whole specification of a chart. height: pixels or {"step": pixels}. A chart takes the width of its place on
    the page; the rows of a concatenated chart get theirs when they are drawn."""
    spec = {"$schema": SCHEMA, "description": description, "params": [{"name": "highlight", "value": ""}], **parts}
    if "vconcat" not in parts:
        spec |= {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    if height is not None:
        spec["height"] = height
    return spec


def if_highlighted(value: Any, otherwise: Any) -> Spec:
    """An encoding with another value for the highlighted drive."""
    return {"condition": {"test": HIGHLIGHTED, "value": value}, "value": otherwise}


def tooltip(*fields: tuple[str, ...]) -> list[Spec]:
    """fields: (field, title) or (field, title, number format)."""
    return [{"field": field, "title": title, **({"type": "quantitative", "format": form[0]} if form else
                                                {"type": "nominal"})} for field, title, *form in fields]


def without(spec: Spec, hidden: Set[str]) -> Spec:
    """The specification without the data of the hidden entries, and without the views and legend symbols that this
    leaves empty. specs.js does the same in the browser."""
    def reduce(node: Any) -> Any:
        if isinstance(node, list):
            return [reduce(part) for part in node]
        if not isinstance(node, dict):
            return node
        return {key: reduce_value(key, value) for key, value in node.items()}

    def reduce_value(key: str, value: Any) -> Any:
        if key in ("data", "legend") and isinstance(value, dict) and isinstance(value.get("values"), list):
            return {**value, "values": [datum for datum in value["values"] if not is_hidden(datum)]}
        if key == "vconcat":
            return [reduce(view) for view in value if not is_emptied(view)]
        return reduce(value)

    def is_hidden(value: Any) -> bool:
        return (value.get("entry") if isinstance(value, dict) else value) in hidden

    def is_emptied(view: Spec) -> bool:
        rows = (view.get("data") or {}).get("values") or []
        return bool(rows) and all(map(is_hidden, rows))

    reduced: Spec = reduce(spec) if hidden else spec
    return reduced


def inline_data(node: Any) -> list[Datum]:
    """All rows of inline data of a specification."""
    if isinstance(node, list):
        return [row for part in node for row in inline_data(part)]
    if not isinstance(node, dict):
        return []
    data = node.get("data")
    rows: list[Datum] = (data.get("values") or []) if isinstance(data, dict) else []
    return rows + [row for key, value in node.items() if key != "data" for row in inline_data(value)]
