"""A page as data: sections of exhibits, each a chart and the table behind it.

Producers make these from documents; the page, the pictures, CSV and Markdown are made of these alone, so that every
form says the same. Values in tables are raw (integers of ns, bytes, MB/s as float); whoever shows them chooses units.
"""

from dataclasses import dataclass, field

# How a column's values are shown. "time": ns; "size": bytes in powers of ten; "rate": MB/s; "block": a power of two of
# bytes (4K); "count": integers; "number": three digits; "share": 0 to 1, as percent; "change": a ratio − 1, as percent
# with its sign; "text": as it is; "verdict": valid, qualified, invalid.
FORMATS = ("text", "verdict", "count", "number", "time", "size", "rate", "block", "share", "change")


@dataclass(frozen=True)
class Column:
    """key: of the value in a row, with its unit where it has one (`wait_ns`): the CSV's header.

    formula: what the figure is, in words and symbols. recompute: the command that gives this number again, with
    RUN in place of the run (a row's `path`); of several runs `blkreel compare RUN RUN …` for `blkreel report RUN`.
    better: "higher", "lower" or "".
    """

    key: str
    title: str
    format: str = "text"
    unit: str = ""  # of "number": what stands behind the digits (IOPS, W)
    formula: str = ""
    recompute: str = ""
    better: str = ""


@dataclass(frozen=True)
class Row:
    """values: by the keys of the columns; None or absent where there is none, and then `why` says the reason.

    entry: the key of the Entry (drive) that it is of; None where it is of no single one. group: rows of one group
    stand together under that title. whole: for an interval or a note beside a value, by key, as text. path: of the
    run that it is of, or of several.
    """

    values: dict
    entry: str | None = None
    why: dict = field(default_factory=dict)
    whole: dict = field(default_factory=dict)
    group: str = ""
    path: str | tuple[str, ...] | None = None


@dataclass(frozen=True)
class Table:
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Exhibit:
    """A chart with the table behind it.

    id: stable over versions, unique on a page, of [a-z0-9-]: name of the file of a chart alone, part of the permalink.
    spec: Vega-Lite without `config` (theme.THEMES) and without outside data; None where the table stands alone. Every
    datum that belongs to an Entry has the field `entry` (its key), so that it can be filtered out before drawing; a
    top-level param `highlight` (value: an entry's key or "") marks one; colours come from the theme's range, styles
    or `{"expr": ...}` on `highlight`. Every chart has a `description`. At most MOST_MARKS data in one spec.
    better: "higher", "lower" or "". text: one sentence below the title. notes: what a reader must know to believe it.
    wide: takes the whole width. zooms: has an interval param `zoom` on x.
    """

    id: str
    title: str
    table: Table
    spec: dict | None = None
    better: str = ""
    text: str = ""
    notes: tuple[str, ...] = ()
    wide: bool = False
    zooms: bool = False


MOST_MARKS = 4000


@dataclass(frozen=True)
class Section:
    """id: as of an exhibit. lead: sentences below its heading."""

    id: str
    title: str
    exhibits: tuple[Exhibit, ...]
    lead: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A drive as it stands in the comparison: one per label, state and data written.

    key: its label, as in data and rows. facts: first-class properties by name, in the order shown: model, firmware,
    unit (serial's hash, shortened), capacity, interface, class, flash, state, price, ... `filters` are those of them
    that a reader filters by. verdict: {"level", "reasons"}. rank: from 1 (ties share one), by what the page leads with;
    None where it has no figure, or too few runs beside others that have enough: `why` says so. place: in the order of
    that figure, whatever the runs; the rank where it is not told.
    """

    key: str
    facts: dict
    verdict: dict
    rank: int | None = None
    highlighted: bool = False
    place: int | None = None
    why: str = ""

    @property
    def order(self) -> int | None:
        return self.rank if self.place is None else self.place


@dataclass(frozen=True)
class Page:
    """kind: "report", "compare" or "test". filters: names of facts that make filters, as ("class", "interface").

    parameters: (what, value) that decide the figures besides the formulas. decisions: (name, text) of the method.
    definitions: analysis.definitions.Definition of figures; preamble: what each recompute may use.
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
    definitions: tuple = ()
    preamble: str = ""
