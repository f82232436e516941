"""The tables of results as text: one unit per column, and reasons for missing values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blkreel.common import units

from .document import ColumnHead, FigureTable


@dataclass(frozen=True)
class Cell:
    """why: the reason for a missing value, otherwise empty. is_number: for its alignment."""

    text: str
    value: Any
    why: str = ""
    is_number: bool = True


@dataclass(frozen=True)
class TextTable:
    """heads: (title, unit) of each column; the unit is empty if the cells have their own or none."""

    title: str
    heads: list[tuple[str, str]]
    rows: list[list[Cell]]

    def is_number(self, column: int) -> bool:
        return all(row[column].is_number for row in self.rows)


def text_table(table: FigureTable) -> TextTable:
    columns = [_column(column, [row[column["key"]] for row in table["rows"]]) for column in table["columns"]]
    rows = []
    for row in table["rows"]:
        cells = []
        for (_, text), column in zip(columns, table["columns"], strict=True):
            value, why = row[column["key"]], row.get("why", {}).get(column["key"], "")
            is_number = not isinstance(value, str)
            cells.append(Cell(units.MISSING if value is None else text(value), value, why, is_number))
        rows.append(cells)
    return TextTable(table["title"], [head for head, _ in columns], rows)


def _column(column: ColumnHead, values: Sequence[Any]) -> tuple[tuple[str, str], Callable[[Any], str]]:
    """((title, unit), function that formats a value)."""
    unit = column["unit"]
    if unit == "ns":
        scale, unit = units.time_unit([value for value in values if not isinstance(value, str)])
        return (column["title"], unit), lambda value: _plain(value, lambda number: units.digits(number / scale))
    if column["key"] == "block":
        return (column["title"], ""), lambda value: _plain(value, units.binary_size)
    if unit == "bytes":
        return (column["title"], ""), lambda value: _plain(value, units.size)
    return (column["title"], unit), lambda value: _plain(value, _number)


def _plain(value: Any, number: Callable[[Any], str]) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else number(value)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else units.digits(value)


def parameter_words(value: Any) -> str:
    """A parameter of the test as text."""
    if isinstance(value, list | tuple):
        return ", ".join(map(parameter_words, value))
    if value is None:
        return units.MISSING
    return _plain(value, lambda number: f"{number:,}")


def drive_line(document: Mapping[str, Any]) -> str:
    """The label of the test, and the drive."""
    from blkreel.analysis.report.columns import drive_words
    words = drive_words(document["drive"]) if document["drive"] else ""
    label = document["label"] or ""
    return ", ".join(filter(None, ("" if words.startswith(label) else label, words)))
