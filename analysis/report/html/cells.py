"""Cells of a table: one unit per column, formatted text, the raw value."""

import math
from dataclasses import dataclass
from typing import Any

from blkreel.analysis.charts.model import Column, Row, Table
from blkreel.common import units
from blkreel.common.binning import grouped

_SIZE_UNITS = ((1, "bytes"), (1000, "KB"), (10**6, "MB"), (10**9, "GB"), (10**12, "TB"))
# Columns whose values are words; all others stand to the right and are compared as numbers.
WORDS = ("text", "verdict")


@dataclass(frozen=True)
class Head:
    """A column with its display unit; a value divided by `scale` is in `unit`."""

    column: Column
    unit: str
    scale: float

    @property
    def is_number(self) -> bool:
        return self.column.format not in WORDS


@dataclass(frozen=True)
class Cell:
    """text: what is shown; "" where there is no value, and then `note` says why. note: also an interval or a remark
    beside the value. raw: the value as CSV and sorting take it, None where there is none."""

    text: str
    raw: str | None
    note: str = ""


def head(column: Column, rows: tuple[Row, ...]) -> Head:
    """The column with the unit that suits its values."""
    values = [value for row in rows if isinstance(value := _plain(row.values.get(column.key)), int | float)
              and math.isfinite(value)]
    scale: float
    if column.format == "time":
        scale, unit = units.time_unit(values)
    elif column.format == "size":
        top = max((abs(value) for value in values), default=10**6)
        scale, unit = max((size_unit for size_unit in _SIZE_UNITS if top >= size_unit[0]), default=_SIZE_UNITS[0])
    elif column.format in ("share", "change"):
        scale, unit = 0.01, "%"
    else:
        scale, unit = 1, "MB/s" if column.format == "rate" else column.unit
    return Head(column, unit, scale)


def heads(table: Table) -> list[Head]:
    return [head(column, table.rows) for column in table.columns]


def cell(column_head: Head, row: Row) -> Cell:
    key = column_head.column.key
    value, beside = _plain(row.values.get(key)), row.remarks.get(key, "")
    if value is None or value == "" or isinstance(value, float) and not math.isfinite(value):
        return Cell("", None, row.why.get(key, "") or beside)
    if not column_head.is_number or isinstance(value, str | bool):
        text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
        return Cell(text, text, beside)
    return Cell(_digits(column_head, value), repr(value), beside)


def _plain(value: Any) -> Any:
    """A NumPy scalar as a Python number; all else unchanged."""
    return value.item() if hasattr(value, "item") else value


def _digits(column_head: Head, value: Any) -> str:
    form = column_head.column.format
    if form == "block":
        return units.binary_size(int(value))
    if form == "count" and float(value).is_integer():
        return f"{int(value):,}"
    if form == "size" and column_head.scale == 1:
        return f"{value:,.0f}"
    if form == "p":
        return "< 0.001" if value < 0.001 else f"{value:.3f}"
    if form == "change":
        return f"{value * 100:+.1f}" if round(value * 100, 1) else "0.0"
    return units.digits(value / column_head.scale)


def groups(table: Table) -> list[tuple[str, list[Row]]]:
    """Rows by group, in the order of the first row of each."""
    return list(grouped((row.group, row) for row in table.rows).items())


def fact_words(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
