"""The tables behind the charts of tests: a figure a column, with its formula and the command that gives it again."""

from dataclasses import dataclass, field

from ... import numbers
from ...exhibits.model import Column, Row, Table
from .subjects import Subject, Value


@dataclass(frozen=True)
class Figure:
    """A column of figures. path: below that of the row, `key` alone where it is empty. The format and unit are those
    of exhibits.model.Column."""

    key: str
    title: str
    format: str = "number"
    unit: str = ""
    formula: str = ""
    better: str = ""
    path: tuple = ()

    @property
    def at(self) -> tuple:
        return self.path or (self.key,)


@dataclass(frozen=True)
class Place:
    """A row: of a drive, of the figures below `base`. labels: by key of the label columns. group: as of a Row."""

    subject: Subject
    base: tuple
    labels: dict = field(default_factory=dict)
    group: str = ""


def figure_table(caption: str, places: list[Place], figures: list[Figure], pattern: tuple,
                 labels: tuple[Column, ...] = ()) -> Table:
    """pattern: the base of every place, with {KEY} where it holds the row's label of that key. Columns of which no row
    knows anything are left out, unless there is a reason to tell."""
    cells = [[place.subject.value(*place.base, *figure.at) for figure in figures] for place in places]
    kept = [index for index in range(len(figures))
            if any(row[index].value is not None or row[index].why for row in cells)]
    columns = [Column("drive", "Drive"), *labels]
    for index in kept:
        one = figures[index]
        key = ".".join((*pattern, *one.at))
        columns.append(Column(one.key, one.title, one.format, one.unit, one.formula,
                              f"blkreel report RUN --figure {quoted(key)}", one.better))
    rows = []
    for place, values in zip(places, cells, strict=True):
        shown = {figures[index].key: values[index] for index in kept}
        rows.append(Row(
            {"drive": place.subject.key, **place.labels, **{key: each.value for key, each in shown.items()}},
            place.subject.key,
            {key: each.why or "not measured" for key, each in shown.items() if each.value is None},
            {key: text for key, each in shown.items() if (text := span(each, _format(figures, key)))},
            place.group, place.subject.path))
    return Table(caption, tuple(columns), tuple(rows))


def quoted(key: str) -> str:
    """As a shell takes it."""
    return f"'{key}'" if any(sign in key for sign in " +*&()'") else key


def _format(figures, key):
    return next(figure.format for figure in figures if figure.key == key)


def span(value: Value, form: str = "number", unit: str = "") -> str:
    """What stands beside a figure of several repetitions: its interval, or their range."""
    if value.n < 2 or value.smallest is None or value.value is None:
        return ""
    low, high, words = ((value.low, value.high, "95 %") if value.low is not None else
                        (value.smallest, value.largest, f"n={value.n}"))
    return f"{words}: {plain(low, form, unit)} to {plain(high, form, unit)}"


def plain(value, form: str, unit: str = "") -> str:
    """A value as text by itself, in the format of a column."""
    if form == "time":
        return numbers.duration(value)
    if form == "size":
        return numbers.size(value)
    if form == "count":
        return f"{value:,.0f}"
    if form == "share":
        return f"{numbers.digits(100 * value)} %"
    return f"{numbers.digits(value)} {'MB/s' if form == 'rate' else unit}".strip()
