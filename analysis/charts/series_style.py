"""How a chart distinguishes drives, the same in all charts of a page.

Up to MOST_HUES drives have a color each, and a dash or a shape. Of more drives, only the highlighted one and its
neighbors in the order have a color, and their names stand at their lines. Where none is highlighted, the first and the
last drive of the order have these.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .model import Page
from .spec import HIGHLIGHTED, Datum, Spec
from .theme import COLORS, DASHES, LEGEND_LABEL_PIXELS, SHAPES

MOST_HUES = 8
_LEGEND_LETTER_PIXELS, _LEGEND_SYMBOL_PIXELS, _LEGEND_GAP_PIXELS = 7, 30, 16
_NARROW_PIXELS = 330
LINE_SYMBOLS: Spec = {"symbolStrokeWidth": 2, "symbolSize": 420}  # of a legend: long enough for a dash
_LABEL_ROOM = (0.12, 0.3)  # least and most share of the width for names at the ends of lines
_LABEL_PIXELS = 15  # from one name to the next
_LETTER_PIXELS, _USUAL_WIDTH = 6.6, 620


def legend_columns(names: Sequence[str]) -> Spec:
    """Rows of the legend as wide as the chart, if its names do not fit in one row of a narrow page."""
    entry_pixels = [min(len(name) * _LEGEND_LETTER_PIXELS, LEGEND_LABEL_PIXELS) + _LEGEND_SYMBOL_PIXELS
                    for name in names]
    if sum(entry_pixels) <= _NARROW_PIXELS:
        return {}
    # The symbol of a line is wider than the room that a legend has for it.
    return {"columns": {"expr": f"max(1, floor(width / {max(entry_pixels) + _LEGEND_GAP_PIXELS}))"},
            "columnPadding": _LEGEND_GAP_PIXELS}


def drive_name(entry: Datum) -> str:
    """The label of an entry of a document; a drive that failed its checks is marked wherever it is drawn."""
    label: str = entry["label"]
    return f"{label} (invalid)" if entry["verdict"]["level"] == "invalid" else label


@dataclass(frozen=True)
class SeriesStyle:
    """keys: of all drives of the page, in their order. names: as shown, by key, where that is not the key. lines: what
    a drive has several lines of; of a single drive these have the colors. present: the keys or lines with data."""

    keys: tuple[str, ...]
    names: dict[str, str]
    lines: tuple[str, ...] = ()
    present: frozenset[str] = frozenset()

    @classmethod
    def of_entries(cls, entries: Iterable[Datum], order: Sequence[str], lines: Sequence[str] = ()) -> "SeriesStyle":
        """entries: of a document. order: labels of all drives of the page."""
        return cls(tuple(order), {entry["label"]: drive_name(entry) for entry in entries}, tuple(lines))

    def limited_to(self, points: Iterable[tuple[str, str]]) -> "SeriesStyle":
        """The style of a chart that has these. points: (entry, line) each."""
        return replace(self, present=frozenset(line if self.by_line else entry for entry, line in points))

    @staticmethod
    def label_expression(names: dict[str, str]) -> str:
        """A Vega expression: the name of the key in `datum.label`."""
        longer = {key: name for key, name in names.items() if name != key}
        return f"({_json(longer)})[datum.label] || datum.label"

    def rows(self, **axis: Any) -> Spec:
        """The y encoding of rows of drives in the order of the field `order`. axis: more properties."""
        return {"field": "entry", "type": "nominal", "sort": {"field": "order", "op": "min"},
                "axis": {"title": None, "domain": False, "ticks": False, "labelLimit": 190, "labelFontSize": 12,
                         "labelExpr": self.label_expression(self.names),
                         "labelColor": {"condition": {"test": "datum.value === highlight", "expr": "accent"},
                                        "expr": "text"}, **axis}}

    @property
    def is_muted(self) -> bool:
        return len(self.keys) > MOST_HUES

    @property
    def by_line(self) -> bool:
        return len(self.keys) == 1

    @property
    def domain(self) -> tuple[str, ...]:
        return self.lines if self.by_line else self.keys

    @property
    def transform(self) -> list[Spec]:
        """Adds `name` to each datum; of many drives also `place`, its number in the order, and `role`: "this" of the
        highlighted drive, "near" of its neighbors, else "other"."""
        longer = {key: name for key, name in self.names.items() if name != key}
        add: list[Spec] = [{"as": "name", "calculate": f"({_json(longer)})[datum.entry] || datum.entry"}]
        if self.is_muted:
            place = f"indexof({_json(list(self.keys))}, highlight)"
            add += [{"as": "place", "calculate": f"indexof({_json(list(self.keys))}, datum.entry)"},
                    {"as": "role", "calculate":
                     f"{HIGHLIGHTED} ? 'this' : {place} >= 0 ? (abs(datum.place - {place}) === 1 ? 'near' : 'other') : "
                     f"datum.place === 0 || datum.place === {len(self.keys) - 1} ? 'near' : 'other'"}]
        return add

    def color(self, legend: Spec | None = None) -> Spec:
        if self.is_muted:
            return {"condition": [{"test": "datum.role === 'this'", "value": {"expr": "accent"}},
                                  {"test": "datum.role === 'near'", "value": {"expr": "near"}}],
                    "value": {"expr": "other"}}
        if len(self.domain) < 2:
            return {"value": {"expr": "near"}}
        return self._nominal({"domain": list(self.domain)}, legend)

    def line(self) -> Spec:
        """Color and dash."""
        return self._encoding("strokeDash", DASHES, self.legend(LINE_SYMBOLS))

    def point(self, *, legend: bool = True) -> Spec:
        """Color and shape. legend: False where another layer has it."""
        return self._encoding("shape", SHAPES, self.legend({"symbolOpacity": 1}) if legend else None)

    def _encoding(self, channel: str, kinds: Sequence[object], legend: Spec | None) -> Spec:
        encoding = {"color": self.color(legend)}
        if not self.is_muted and len(self.domain) > 1:
            cycled = [kinds[index % len(kinds)] for index in range(len(self.domain))]
            encoding[channel] = self._nominal({"domain": list(self.domain), "range": cycled}, legend)
        return encoding

    def _nominal(self, scale: Spec, legend: Spec | None) -> Spec:
        return {"field": "line" if self.by_line else "entry", "type": "nominal", "legend": legend, "scale": scale}

    def legend(self, symbols: Spec) -> Spec:
        domain = [key for key in self.domain if not self.present or key in self.present]
        return {"orient": "top", "title": None, "columns": 0, "values": domain, **symbols,
                **legend_columns([self.names.get(key, key) for key in domain]),
                "labelExpr": self.label_expression(self.names)}

    def label_room(self) -> float:
        """Share of the width that names at the ends of lines need."""
        if not self.is_muted:
            return 0.0
        longest = max(len(self.names.get(key, key)) for key in self.keys)
        return min(max(longest * _LETTER_PIXELS / _USUAL_WIDTH, _LABEL_ROOM[0]), _LABEL_ROOM[1])

    def end_labels(self, rows: Sequence[Datum], y: str) -> list[Spec]:
        """The layer with the names of the drives that have a color, of many drives; none of few. rows: data of the
        chart; those with `end` get the name. y: field of the position. The names, at most three, are moved apart in
        the order of their heights, so that two lines that end at one height have two names to read."""
        if not self.is_muted:
            return []
        ends = {f"{row['entry']}|{row.get('line', '')}": row[y] for row in rows if row.get("end")}
        highlighted = f"indexof({_json(list(self.keys))}, highlight)"
        last = len(self.keys) - 1
        places = (f"{highlighted} < 0 ? 0 : {highlighted} - 1", highlighted,
                  f"{highlighted} < 0 ? {last} : {highlighted} + 1")
        add: list[Spec] = [{"as": "ends", "calculate": _json(ends)},
                           {"as": "keys", "calculate": _json(list(self.keys))},
                           {"as": "named", "calculate": f"[{', '.join(f'({place})' for place in places)}]"}]
        add += [{"as": f"end_{index}", "calculate":
                 f"datum.ends[datum.keys[datum.named[{index}]] + '|' + datum.line]"} for index in range(len(places))]
        above = " + ".join(f"(datum.end_{index} > datum.{y} || datum.end_{index} === datum.{y} && "
                           f"datum.named[{index}] < datum.place ? 1 : 0)" for index in range(len(places)))
        count = " + ".join(f"(isValid(datum.end_{index}) ? 1 : 0)" for index in range(len(places)))
        add += [{"as": "label_dy", "calculate": f"{_LABEL_PIXELS} * ({above} - ({count} - 1) / 2)"}]
        return [{"transform": add,
                 "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 8, "limit": 180,
                          "dy": {"expr": "datum.label_dy"}},
                 "encoding": {"text": {"condition": {"test": "datum.end && datum.role !== 'other'", "field": "name",
                                                     "type": "nominal"}, "value": ""},
                              "color": {"condition": {"test": "datum.role === 'this'", "value": {"expr": "accent"}},
                                        "value": {"expr": "near"}}}}]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_CATEGORIES = len(COLORS["light"]["category"])


def with_drive_colors(page: Page, colors: Mapping[str, str]) -> Page:
    """The page with these colors of drives, by key, in all of its charts; the other drives keep those of the theme."""
    if not colors:
        return page
    return replace(page, sections=tuple(replace(section, charts=tuple(
        replace(chart, spec=_recolored(chart.spec, colors)) if chart.spec else chart for chart in section.charts))
        for section in page.sections))


def _recolored(node: Any, colors: Mapping[str, str]) -> Any:
    if isinstance(node, list):
        return [_recolored(part, colors) for part in node]
    if not isinstance(node, dict):
        return node
    return {name: _with_range(value, colors) if name == "color" and _is_of_drives(value) else
            value if name == "data" else _recolored(value, colors) for name, value in node.items()}


def _is_of_drives(channel: Any) -> bool:
    return (isinstance(channel, dict) and channel.get("field") == "entry"
            and isinstance((channel.get("scale") or {}).get("domain"), list))


def _with_range(channel: dict[str, Any], colors: Mapping[str, str]) -> dict[str, Any]:
    domain: Sequence[str] = channel["scale"]["domain"]
    chosen = [colors.get(key) or {"expr": f"category_{index % _CATEGORIES}"} for index, key in enumerate(domain)]
    return {**channel, "scale": {**channel["scale"], "range": chosen}}
