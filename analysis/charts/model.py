"""A page as data: sections of charts, each with the table behind it.

HTML, pictures, CSV and Markdown come from these alone, so that all forms have the same content. Values in tables are
raw (integers of ns and bytes, MB/s as float); each form chooses the units.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from blkreel.analysis.metrics.definitions.metric import Metric
from blkreel.common.verdict import Verdict

from .theme import NO_BRAND, Brand

# How a column's values are shown. "time": ns; "size": bytes in powers of ten; "rate": MB/s; "block": a power of two of
# bytes (4K); "count": integers; "number": three digits; "share": 0 to 1, as percent; "change": a ratio − 1, as percent
# with its sign; "p": a p-value, from 0.001 on; "text": as it is; "verdict": valid, qualified, invalid.
FORMATS = ("p", "text", "verdict", "count", "number", "time", "size", "rate", "block", "share", "change")


@dataclass(frozen=True)
class Column:
    """key: of the value in a row, with its unit where it has one (`wait_ns`).

    formula: in words and symbols. recompute: the command that prints this number, with RUN in place of the run (a row's
    `path`); for several runs, `blkreel compare RUN RUN …` replaces `blkreel report RUN`.
    better: "higher", "lower" or "".
    """

    key: str
    title: str
    format: str = "text"
    unit: str = ""  # of "number": what stands behind the digits (IOPS, W)
    formula: str = ""
    recompute: str = ""
    better: str = ""

    @property
    def header(self) -> str:
        """In CSV: the key, with the unit behind it where it does not end in one. Shares and changes are unrounded: 0.5
        is 50 %."""
        unit = {"time": "ns", "size": "bytes", "block": "bytes", "rate": "mb_s", "share": "", "change": ""}.get(
            self.format, self.unit)
        unit = unit.replace("/", "_").replace("°", "").replace(" ", "_").lower()
        return self.key if not unit or self.key.replace("_per_", "_").endswith(unit) else f"{self.key}_{unit}"


@dataclass(frozen=True)
class Row:
    """values: by the keys of the columns; a missing value has its reason in `why`.

    entry: the key of its Entry (drive); None for a row of no single drive. group: rows of one group stand together
    under that title. remarks: an interval or a note beside a value, by key. path: of its run, or of several. links: to
    other pages and files, by key.
    """

    values: dict[str, Any]
    entry: str | None = None
    why: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    group: str = ""
    path: str | tuple[str, ...] | None = None
    links: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Chart:
    """A chart with the table behind it.

    id: stable over versions, unique on a page, of [a-z0-9-]: name of the file of a chart alone, part of the permalink.
    spec: Vega-Lite without `config` (Brand.config()) and without outside data; None where the table stands alone. Every
    datum that belongs to an Entry has the field `entry` (its key), so that it can be filtered out before drawing; a
    top-level param `highlight` (value: an entry's key or "") marks one; colors come from the theme's range, styles
    or `{"expr": ...}` on `highlight`. Every chart has a `description`. At most MOST_MARKS data in one spec.
    better: "higher", "lower" or "". text: one sentence below the title. notes: limitations. usage: how to use the chart
    on a page; pictures omit it.
    wide: takes the whole width. zooms: has an interval param `zoom` on x. folded: stands under "Details" of its
    section. featured: of many drives, draws Page.featured until the reader asks for the rest.
    """

    id: str
    title: str
    table: Table
    spec: dict[str, Any] | None = None
    better: str = ""
    text: str = ""
    notes: tuple[str, ...] = ()
    usage: str = ""
    wide: bool = False
    zooms: bool = False
    folded: bool = False
    featured: bool = False


MOST_MARKS = 6000
MOST_FEATURED = 8
MOST_OPEN = 3  # charts of a section; the others stand under Details
KIN = ("predecessor", "rivals")  # facts that name other drives


def folded_beyond(charts: Sequence[Chart], most: int) -> tuple[Chart, ...]:
    """The charts with a picture after the first `most` stand under Details."""
    drawn = [chart.id for chart in charts if chart.spec is not None][:most]
    return tuple(chart if chart.spec is None or chart.id in drawn else replace(chart, folded=True) for chart in charts)


@dataclass(frozen=True)
class Section:
    """id: as of a chart. lead: sentences below its heading. source: of its data, in one line: workload, pace, drives,
    runs, state, date. Pictures of its charts have this line."""

    id: str
    title: str
    charts: tuple[Chart, ...]
    lead: tuple[str, ...] = ()
    source: str = ""

    @property
    def open_charts(self) -> tuple[Chart, ...]:
        return tuple(chart for chart in self.charts if not chart.folded)

    @property
    def folded_charts(self) -> tuple[Chart, ...]:
        return tuple(chart for chart in self.charts if chart.folded)


@dataclass(frozen=True)
class Entry:
    """A drive as it stands in the comparison: one per label, state and data written.

    key: its label, as in data and rows. facts: first-class properties by name, in the order shown: model, firmware,
    unit (serial's hash, shortened), capacity, interface, class, flash, state, price, ... `filters` are those of them
    that a reader filters by. rank: from 1 (ties share one), by the leading figure;
    None with the reason in `why` without the figure, or with too few runs where other drives have enough. place: in
    the order of that figure, whatever the runs; the rank if None. link: to its own page.
    """

    key: str
    facts: dict[str, Any]
    verdict: Verdict
    rank: int | None = None
    highlighted: bool = False
    place: int | None = None
    why: str = ""
    link: str = ""

    @property
    def order(self) -> int | None:
        return self.rank if self.place is None else self.place


@dataclass(frozen=True)
class KeyFigure:
    """text: the value with its unit. title: the metric. note: the other drive's value, or an interval."""

    text: str
    title: str
    note: str = ""


@dataclass(frozen=True)
class Answer:
    """The first screen. sentence: the result, the heading of the page. workload: title, pace, drives and runs.
    differences: which drives differ, or what more runs would give. reasons: (level, text) behind the verdicts."""

    sentence: str
    workload: str
    figures: tuple[KeyFigure, ...] = ()
    differences: str = ""
    reasons: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Page:
    """kind: "report", "compare", "test", "history" or "site". filters: names of facts that make filters, as ("class",
    "interface").

    parameters: (what, value) that decide the figures besides the formulas. decisions: (name, text) of the method.
    definitions: analysis.definitions.Definition of figures; preamble: what each recompute may use. brand: colors,
    font and logo. navigation: (title, link) of the pages above this one. feed: link to an Atom feed.
    """

    kind: str
    title: str
    lead: str
    entries: tuple[Entry, ...]
    sections: tuple[Section, ...]
    filters: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    decisions: tuple[tuple[str, str], ...] = ()
    definitions: tuple[Metric, ...] = ()
    preamble: str = ""
    answer: Answer | None = None
    brand: Brand = NO_BRAND
    navigation: tuple[tuple[str, str], ...] = ()
    feed: str = ""

    def kin(self, entry: Entry) -> list[str]:
        """Keys of the entries that this one names as its predecessor or its rivals, by label or model; of the
        highlighted one also those that say how they are related to it."""
        named = {candidate.key for candidate in self.entries if entry.highlighted and candidate.facts.get("relation")}
        for name in KIN:
            value = entry.facts.get(name)
            named |= {value} if isinstance(value, str) else set(value or ())
        named |= {part.strip() for text in list(named) for part in text.split(",")}
        return [candidate.key for candidate in self.entries
                if candidate.key != entry.key and named & {candidate.key, candidate.facts.get("model")}]

    def featured(self) -> list[str]:
        """Keys of the drives that a chart of many draws first: the drive under test, its predecessor and rivals, the
        best and the worst. All of up to MOST_FEATURED."""
        ordered = [entry.key for entry in self.entries]
        if len(ordered) <= MOST_FEATURED:
            return ordered
        wanted = [key for entry in self.entries if entry.highlighted for key in (entry.key, *self.kin(entry))]
        ends = [key for pair in zip(ordered, reversed(ordered), strict=True) for key in pair]
        wanted = list(dict.fromkeys([*wanted[:MOST_FEATURED - 2], ordered[0], ordered[-1], *ends]))[:MOST_FEATURED]
        return [key for key in ordered if key in wanted]
