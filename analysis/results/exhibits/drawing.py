"""What the charts of tests share: axes, how drives are told apart, how a specification ends.

A chart has all its domains from here, in Python: so it looks the same whichever drives the reader filters out, and no
layer that is left without rows has to look for an extent. Rows carry `entry`, the key of their drive, `name`, as it is
shown, and `place`, its number in the list.
"""

import json
import math
from dataclasses import dataclass

from ... import numbers
from ...exhibits.model import MOST_MARKS
from ...theme import DASHES, SHAPES

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.1.0.json"
MOST_HUES = 8  # more than the eye tells apart: beyond it all are muted but for the marked one and its neighbours
MARKED = "datum.entry === highlight"
# Shared scales would share a legend, and its symbols would be the marks of all layers at once.
OWN_SCALES = {"scale": {channel: "independent" for channel in ("color", "strokeDash", "shape")}}
_FAR_APART = 30  # largest / smallest of what is drawn on a line from zero
_ROOM = (0.12, 0.3)  # of the width, for names at the ends of lines: at least and at most
_LETTER, _USUAL_WIDTH = 6.6, 620  # pixels
_INKS = ({"test": "datum.role === 'this'", "value": {"expr": "accent"}},
         {"test": "datum.role === 'near'", "value": {"expr": "near"}})
_SIZE_LABEL = "".join(f"datum.value >= {scale} ? format(datum.value / {scale}, '~r') + '{unit}' : "
                      for scale, unit in ((1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"))) + (
                          "datum.value + ''")
_TIME_LABEL = "".join(f"datum.value >= {scale} ? format(datum.value / {scale}, '~r') + ' {unit}' : "
                      for scale, unit in (("1e9", "s"), ("1e6", "ms"), ("1e3", "µs"))) + "datum.value + ' ns'"


@dataclass(frozen=True)
class Axis:
    """kind: "linear" (from zero where it is y), "count" (so, of whole numbers), "log", "log2" (doubling; ticks are the
    values), "names" (0, 1, .. of `names`) or "auto" (linear, or log where values lie far apart). unit: "ns" is brought
    to one that suits, "block" is 4K, "bytes" of a linear axis is GB. zero: a linear axis begins there."""

    title: str
    unit: str = ""
    kind: str = "linear"
    zero: bool = True
    names: tuple = ()

    def text(self, value) -> str:
        """A value by itself, as a tooltip says it."""
        if self.kind == "names":
            return self.names[value]
        if self.unit == "ns":
            return numbers.duration(value)
        if self.unit == "block":
            return numbers.binary_size(value)
        if self.unit == "bytes":
            return numbers.size(value)
        shown = f"{value:,}" if isinstance(value, int) else numbers.digits(value)
        return f"{shown} {self.unit}".strip()


@dataclass(frozen=True)
class Scaled:
    """An axis with its data: `by` is what values are divided by; encoding is all but the field."""

    by: float
    encoding: dict
    is_log: bool = False
    low: float = 0.0
    high: float = 1.0


def scaled(axis: Axis, values: list, *, x: bool = False, room: float = 0.0) -> Scaled:
    """The axis for these values, with a domain that holds them. room: share of the domain left free behind them."""
    low, high = min(values), max(values)
    kind, by, unit = axis.kind, 1, axis.unit
    if kind == "auto":
        kind = "log" if low > 0 and high > _FAR_APART * low else "linear"
    if kind in ("log", "log2") and low <= 0:
        kind = "linear"
    whole, kind = kind == "count", "linear" if kind == "count" else kind
    if unit == "ns" and kind == "linear":
        by, unit = numbers.time_unit(values)
    elif unit == "bytes" and kind == "linear":
        by, unit = 10**9, "GB"
    low, high = low / by, high / by
    told = {"block": "", "bytes": "", "ns": ""}.get(unit, unit) if kind in ("log", "log2") else unit
    title = f"{axis.title}, {told}" if told else axis.title
    drawn = {"title": title, "grid": not x, "tickCount": 5}
    scale = {"nice": False}
    if kind == "names":
        scale["domain"] = _wider(-0.2, len(axis.names) - 0.8, room)
        names = json.dumps(list(axis.names), ensure_ascii=False)
        drawn |= {"values": list(range(len(axis.names))), "labelExpr": f"{names}[datum.value]", "title": axis.title,
                  "grid": True}
    elif kind in ("log", "log2"):
        edge = (high / low) ** 0.04 if high > low else 1.5
        edge = max(edge, 1.12)
        reach = (high * edge) * (high * edge / (low / edge)) ** (room / (1 - room))
        scale |= {"type": "log", "domain": [low / edge, reach], **({"base": 2} if kind == "log2" else {})}
        del drawn["tickCount"]  # of a logarithmic axis it drops labels even of chosen ticks
        drawn["values"] = _ticks(values, low / edge, high * edge, kind)
        drawn["labelExpr"] = {"ns": _TIME_LABEL, "block": _SIZE_LABEL, "bytes": _SIZE_LABEL}.get(
            unit, "format(datum.value, ',~r')")
        drawn["labelOverlap"] = "greedy" if len(drawn["values"]) > 9 else False
        return Scaled(by, {"type": "quantitative", "scale": scale, "axis": drawn}, True, low / edge, reach)
    else:
        if axis.zero and not x:
            low = min(low, 0)
        reach = (high - low) or abs(high) or 1
        edge = 0 if x else 0.06 * reach
        scale["domain"] = _wider(low if x or axis.zero else low - edge, high + edge, room)
        drawn["format"] = ",~r"
        if whole:
            drawn["tickMinStep"] = 1
    return Scaled(by, {"type": "quantitative", "scale": scale, "axis": drawn}, False, *scale["domain"])


def _wider(low, high, room):
    high = high if high > low else low + 1
    return [low, high + (high - low) * room / (1 - room)]


def _ticks(values, low, high, kind):
    if kind == "log2":
        return sorted(set(values))[:24]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if high / low > 1000 else (1, 2, 5)
    return [step * 10.0**power if power < 0 else step * 10**power for power in powers for step in steps
            if low <= step * 10.0**power <= high]


def role(entries: int, places: dict) -> dict:
    """A transform: `role` of a row: "this" of the marked drive, "near" of its neighbours in the list, else "other".
    Where none is marked, the first and the last of the list are "near"."""
    found = f"({json.dumps(places, ensure_ascii=False)})[highlight]"
    return {"as": "role", "calculate":
            f"{MARKED} ? 'this' : isValid({found}) ? (abs(datum.place - {found}) === 1 ? 'near' : 'other') : "
            f"datum.place === 0 || datum.place === {entries - 1} ? 'near' : 'other'"}


@dataclass(frozen=True)
class Apart:
    """How the lines of a chart are told apart. keys: of the drives, in their order."""

    keys: tuple[str, ...]
    names: dict
    lines: tuple[str, ...] = ()

    @property
    def muted(self) -> bool:
        return len(self.keys) > MOST_HUES

    @property
    def by_line(self) -> bool:
        """One drive: its lines are told apart by what they are of."""
        return len(self.keys) == 1

    @property
    def field(self) -> str:
        return "line" if self.by_line else "entry"

    @property
    def transform(self) -> list[dict]:
        return [role(len(self.keys), {key: place for place, key in enumerate(self.keys)})] if self.muted else []

    @property
    def domain(self) -> list[str]:
        return list(self.lines) if self.by_line else list(self.keys)

    def legend(self, symbol="line"):
        if len(self.domain) < 2:
            return None
        long = sum(len(self.names.get(key, key)) + 5 for key in self.domain) > 60
        look = {"symbolStrokeWidth": 2} if symbol == "line" else {"symbolOpacity": 1}
        return {"orient": "top", "title": None, "columns": 2 if long else 0, "values": self.domain, **look,
                "labelExpr": f"({json.dumps(self.names, ensure_ascii=False)})[datum.label] || datum.label"}

    def encoding(self, symbol="line", shapes=True, legend=True) -> dict:
        """Colour, and for lines a dash, for points a shape. legend: False where another layer has it."""
        if self.muted:
            return {"color": {"condition": list(_INKS), "value": {"expr": "other"}}}
        if len(self.domain) < 2:
            return {"color": {"value": {"expr": "near"}}}
        base = {"field": self.field, "type": "nominal", "legend": self.legend(symbol) if legend else None}
        encoding = {"color": {**base, "scale": {"domain": self.domain}}}
        if symbol == "line":
            encoding["strokeDash"] = {**base, "scale": {"domain": self.domain, "range": _cycled(DASHES, self.domain)}}
        elif shapes:
            encoding["shape"] = {**base, "scale": {"domain": self.domain, "range": _cycled(SHAPES, self.domain)}}
        return encoding

    def rows(self, rows: list[dict]) -> list[dict]:
        """With `name` and `place` of their drive."""
        places = {key: place for place, key in enumerate(self.keys)}
        return [{**row, "name": self.names[row["entry"]], "place": places[row["entry"]]} for row in rows]


def _cycled(kinds, domain):
    return [kinds[index % len(kinds)] for index in range(len(domain))]


def finished(description: str, *, height=None, fills: bool = True, params=(), **spec) -> dict:
    """A whole specification. height: pixels or {"step": pixels}. fills: it takes the width of its place on the page;
    the rows of a concatenated chart are given theirs when they are drawn."""
    built = {"$schema": SCHEMA, "description": description, "params": [{"name": "highlight", "value": ""}, *params],
             **spec}
    if fills:
        built |= {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    if height is not None:
        built["height"] = height
    return built


def tooltip(*fields) -> list[dict]:
    """(field, title) each."""
    return [{"field": field, "title": title, "type": "nominal"} for field, title in fields]


def room_for(apart: Apart) -> float:
    """Share of the width that names at the ends of lines need."""
    if not apart.muted:
        return 0.0
    longest = max(map(len, apart.names.values()))
    return min(max(longest * _LETTER / _USUAL_WIDTH, _ROOM[0]), _ROOM[1])


def names(values: list[dict], by: str, field: str, line: str = "line") -> list[dict]:
    """Layers that name the drives that stand out: each at its point, a neighbour above or below the marked drive's name
    by where it lies. values: rows of the chart; by: their y; field: what is written; line: what a drive has several of.
    """
    at = {f"{value['entry']}|{value.get(line, '')}": value[by] for value in values if value[field]}
    marked = f"({json.dumps(at, ensure_ascii=False)})[highlight + '|' + datum.{line}]"
    above = f"isValid({marked}) && datum.{by} > {marked}"
    layers = []
    for role_is, test, dy in (("this", "true", 0), ("near", above, -11), ("near", f"!({above})", 11)):
        layers.append({"mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 8, "dy": dy, "limit": 180},
                       "encoding": {"text": {"condition": {"test": f"datum.role === '{role_is}' && {test}",
                                                           "field": field, "type": "nominal"}, "value": ""},
                                    "color": {"value": {"expr": "accent" if role_is == "this" else "near"}}}})
    return layers


def fewer(rows: list[dict], most: int = MOST_MARKS - 100) -> list[dict]:
    """At most so many rows, thinned evenly: for scattered points, where each looks like the next."""
    return rows if len(rows) <= most else [rows[round(index * (len(rows) - 1) / (most - 1))] for index in range(most)]
