"""The tables of results as text, once for the page and for the terminal: one unit down a column, reasons for gaps."""

from dataclasses import dataclass

from .. import numbers


@dataclass(frozen=True)
class Cell:
    """why: the reason where there is no value; otherwise empty. is_number: for its alignment."""

    text: str
    value: object
    why: str = ""
    is_number: bool = True


@dataclass(frozen=True)
class Shown:
    """heads: (title, unit) of each column, the unit empty where cells carry their own or have none."""

    title: str
    heads: list[tuple[str, str]]
    rows: list[list[Cell]]

    def is_number(self, column: int) -> bool:
        return all(row[column].is_number for row in self.rows)


def shown(table: dict) -> Shown:
    """One table of the document."""
    columns = [_column(column, [row[column["key"]] for row in table["rows"]]) for column in table["columns"]]
    rows = []
    for row in table["rows"]:
        cells = []
        for (_, text), column in zip(columns, table["columns"], strict=True):
            value, why = row[column["key"]], row.get("why", {}).get(column["key"], "")
            is_number = not isinstance(value, str)
            cells.append(Cell(numbers.MISSING if value is None else text(value), value, why, is_number))
        rows.append(cells)
    return Shown(table["title"], [head for head, _ in columns], rows)


def _column(column, values):
    """((title, unit), how a value becomes text)."""
    unit = column["unit"]
    if unit == "ns":
        scale, unit = numbers.time_unit([value for value in values if not isinstance(value, str)])
        return (column["title"], unit), lambda value: _plain(value, lambda one: numbers.digits(one / scale))
    if column["key"] == "block":
        return (column["title"], ""), lambda value: _plain(value, numbers.binary_size)
    if unit == "bytes":
        return (column["title"], ""), lambda value: _plain(value, numbers.size)
    return (column["title"], unit), lambda value: _plain(value, _number)


def _plain(value, number):
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else number(value)


def _number(value):
    return f"{value:,}" if isinstance(value, int) else numbers.digits(value)


def parameter_words(value) -> str:
    """A parameter of the test as text: lists in a row."""
    if isinstance(value, list | tuple):
        return ", ".join(map(parameter_words, value))
    if value is None:
        return numbers.MISSING
    return _plain(value, lambda number: f"{number:,}")


def drive_line(document: dict) -> str:
    """What was tested, and what it was called."""
    from ..columns import drive_words
    words = drive_words(document["drive"]) if document["drive"] else ""
    label = document["label"] or ""
    return ", ".join(filter(None, ("" if words.startswith(label) else label, words)))
