"""What every specification shares: its frame, its axes, the mark of the highlighted drive, tooltips, less of its data.

A specification is plain Vega-Lite. It has all its domains from Python and no layer filters rows while it is drawn: a
layer that is left without rows has no extent, and the browser's console reports that.
"""

import json
import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from blkreel.common import units

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


_LOG_FROM = 10  # largest / smallest value from which an "auto" axis is logarithmic
_MOST_TICKS = 24


def labels_by_scale(value: str, scales: Sequence[tuple[float, str]], form: str = "~r") -> str:
    """A Vega expression: the expression `value` in the largest scale that it reaches, with that scale's unit."""
    *steps, last = [(f"{value} >= {scale:.0f} ? ", f"format({value} / {scale:.0f}, '{form}') + '{unit}'")
                    for scale, unit in scales]
    return "".join(f"{test}{text} : " for test, text in steps) + last[1]


TIMES = ((1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1, " ns"))
_SIZES = ((1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"), (1, ""))
_LABELS = {"ns": labels_by_scale("datum.value", TIMES), "block": labels_by_scale("datum.value", _SIZES),
           "bytes": labels_by_scale("datum.value", _SIZES)}


@dataclass(frozen=True)
class Axis:
    """unit: "ns" is shown in a suitable unit, "block" as 4K, "bytes" of a linear axis as GB, "share" as percent.

    kind: "linear", "count" (linear, of whole numbers), "log", "log2" (the ticks are the values), "names" (0, 1, .. of
    `names`) or "auto" (logarithmic where values lie far apart, else linear). A linear y axis begins at zero.
    domain: the lowest and highest value shown; those of the data if None.
    """

    title: str
    unit: str = ""
    kind: str = "linear"
    names: tuple[str, ...] = ()
    domain: tuple[float, float] | None = None

    def text(self, value: float) -> str:
        """A value with its unit."""
        if self.kind == "names":
            return self.names[int(value)]
        if self.unit == "ns":
            return units.duration(value)
        if self.unit == "block":
            return units.binary_size(int(value))
        if self.unit == "bytes":
            return units.size(value)
        if self.unit == "share":
            return f"{units.digits(100 * value)} %"
        digits = f"{value:,}" if isinstance(value, int) else units.digits(value)
        return f"{digits} {self.unit}".strip()


@dataclass(frozen=True)
class ScaledAxis:
    """An axis for given values. divisor: from the unit of the data to that of the axis. low, high: the domain, in the
    unit of the axis."""

    divisor: float
    title: str
    low: float
    high: float
    scale: Spec
    ticks: Spec

    @property
    def is_log(self) -> bool:
        return self.scale.get("type") == "log"

    def encode(self, field: str, **more: object) -> Spec:
        """The encoding of a field. more: properties of the axis."""
        return {"field": field, "type": "quantitative", "scale": {**self.scale, "domain": [self.low, self.high]},
                "axis": {"title": self.title, **self.ticks, **more}}


def scale_axis(axis: Axis, values: Sequence[float], *, is_x: bool = False, room: float = 0.0) -> ScaledAxis:
    """The axis for these values. room: share of the domain that stays free behind them."""
    low, high = axis.domain or (min(values), max(values))
    kind = axis.kind
    if kind == "auto":
        kind = "log" if low > 0 and high > _LOG_FROM * low else "linear"
    if kind in ("log", "log2") and low > 0:
        return _log_axis(axis, kind, values, low, high, room)
    if kind == "names":
        names = json.dumps(list(axis.names), ensure_ascii=False)
        low, high = _with_room(-0.2, len(axis.names) - 0.8, room)
        return ScaledAxis(1, axis.title, low, high, {"nice": False}, {
            "grid": True, "values": list(range(len(axis.names))), "labelExpr": f"{names}[datum.value]",
            "labelOverlap": True})
    divisor, unit = {"ns": units.time_unit(values), "bytes": (10**9, "GB"), "share": (1, "")}.get(
        axis.unit, (1, axis.unit))
    ticks: Spec = {"grid": not is_x, "tickCount": 5, "format": ".0%" if axis.unit == "share" else ",~r"}
    if kind == "count":
        ticks["tickMinStep"] = 1
    low, high = low / divisor, high / divisor
    if axis.domain is None and not is_x:
        low = min(low, 0)
        high += 0.06 * ((high - low) or abs(high) or 1)
    low, high = _with_room(low, high, room)
    return ScaledAxis(divisor, f"{axis.title}, {unit}" if unit else axis.title, low, high, {"nice": False}, ticks)


def _log_axis(axis: Axis, kind: str, values: Sequence[float], low: float, high: float, room: float) -> ScaledAxis:
    margin = max((high / low) ** 0.04, 1.12) if high > low else 1.5
    if axis.domain is None:
        low, high = low / margin, high * margin
    # No tickCount: on a logarithmic axis it drops labels even of chosen ticks.
    positions = sorted(set(values))[:_MOST_TICKS] if kind == "log2" else _decades(low, high)
    ticks = {"grid": True, "values": positions,
             "labelExpr": _LABELS.get(axis.unit, "format(datum.value, ',~r')"),
             "labelOverlap": "greedy" if len(positions) > 9 else False}
    unit = "" if axis.unit in _LABELS else axis.unit
    high *= (high / low) ** (room / (1 - room))
    return ScaledAxis(1, f"{axis.title}, {unit}" if unit else axis.title, low, high, {
        "type": "log", "nice": False, **({"base": 2} if kind == "log2" else {})}, ticks)


def _with_room(low: float, high: float, room: float) -> tuple[float, float]:
    if low == high:  # a single value, however small, is at an end of the axis
        low, high = min(low, 0.0), max(high, 0.0) or float(low == 0)
    return low, high + (high - low) * room / (1 - room)


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten in a domain; also 2 and 5 times these where there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if high / low > 1000 else (1, 2, 5)
    ticks = [step * (10**power if power >= 0 else 10.0**power) for power in powers for step in steps]
    return [tick for tick in ticks if low <= tick <= high]
