"""The results of a benchmark: computed, stored beside it, and printed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from blkreel.benchmarks.reports.results import results_of
from blkreel.benchmarks.results.document import Results
from blkreel.benchmarks.results.tables import Cell, TextTable, drive_line, text_table
from blkreel.benchmarks.runner.record import RESULTS
from blkreel.common.console import Console, Detail
from blkreel.common.errors import BlkreelError, os_errors
from blkreel.common.files.json_file import write_json

from .progress import progress
from .replay_summary import verdict_lines

_REPEAT_COLUMNS = ("n", "Repeat")  # left out of a benchmark with one repeat
_MAX_TRANSPOSED_ROWS = 4
_MAX_REASON_CHARACTERS = 20  # in a cell; a longer reason is a note below the table

_Head = tuple[str, str]  # title and unit


def write_results(directory: Path) -> Results:
    """Compute the results of a benchmark and store them beside it. Raises BlkreelError."""
    with progress("computing results") as task:
        document = results_of(directory, lambda done, total: task.update(done, f"step {done} of {total}"))
    with os_errors(BlkreelError, f"cannot write {directory / RESULTS}",
                   f"free some space, then: blkreel report {directory}"):
        write_json(directory / RESULTS, document)
    return document


def show(document: Mapping[str, Any], console: Console, detail: Detail) -> None:
    """Print the results document: title, verdict and tables."""
    console.print(f"[bold]{escape(document['title'] or document['test'])}[/]")
    line = drive_line(document)
    if line:
        console.print(escape(line), highlight=False)
    if document["quick"]:
        console.print("[bold black on yellow] QUICK [/] [bold yellow]shortened trial: not comparable with the full "
                      "benchmark[/]")
    console.print_lines(map(escape, verdict_lines(document["verdict"], detail, console.width)))
    for gap in document["missing"]:
        console.print(f"  [bold red]missing[/]: {escape(gap['title'])}: {escape(gap['why'])}", highlight=False)
    for table in document["tables"]:
        if table["rows"]:
            _show_table(text_table(table), console)


def _show_table(table: TextTable, console: Console) -> None:
    empty: dict[str, list[str]] = {}  # titles of the columns without a value, by the reason
    visible = []
    for index, (title, _) in enumerate(table.heads):
        cells = [row[index] for row in table.rows]
        reasons = {cell.why for cell in cells}
        if all(cell.value is None for cell in cells) and len(reasons) == 1 and reasons != {""}:
            empty.setdefault(reasons.pop(), []).append(title)
        elif title not in _REPEAT_COLUMNS or {cell.value for cell in cells} != {1}:
            visible.append(index)
    notes: list[str] = []
    texts = [[_text(row[index], notes) for index in visible] for row in table.rows]
    _draw(table.title, [table.heads[index] for index in visible], texts,
          [table.is_number(index) for index in visible], console)
    for number, note in enumerate(notes, 1):
        console.print(escape(f"  [{number}] {note}"), highlight=False)
    for reason, titles in empty.items():
        console.print(escape(f"  {', '.join(titles)}: {reason}"), highlight=False)


def _draw(title: str, heads: list[_Head], texts: list[list[str]], numbers: list[bool], console: Console) -> None:
    """Draw a table that fits the console.

    A wide table of few rows is transposed. Otherwise it is split into parts that repeat the first column. Only
    headings are wrapped, since wrapped cells cannot be read down a column.
    """
    widths = [_min_width(heads[index], [row[index] for row in texts]) for index in range(len(heads))]
    if _width(widths) <= console.width or len(heads) < 3:
        console.print(_table(title, heads, texts, numbers, console.width))
        return
    if len(texts) <= _MAX_TRANSPOSED_ROWS:
        transposed = [[_heading(heads[index]).replace("\n", ", "), *(row[index] for row in texts)]
                      for index in range(1, len(heads))]
        unit = heads[0][1] and f" {heads[0][1]}"
        names = [(heads[0][0], ""), *((row[0] + unit, "") for row in texts)]
        console.print(_table(title, names, transposed, [False] + [True] * len(texts), console.width))
        return
    begin = 1
    while begin < len(heads):
        end = begin + 1
        while end < len(heads) and _width([widths[0], *widths[begin:end + 1]]) <= console.width:
            end += 1
        part = [0, *range(begin, end)]
        console.print(_table(title, [heads[index] for index in part],
                             [[row[index] for index in part] for row in texts], [numbers[index] for index in part],
                             console.width))
        begin = end


def _min_width(head: _Head, cells: Sequence[str]) -> int:
    return max(map(len, [*_heading(head).split(), *cells, ""]))


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + 3 * len(widths) + 1  # with the space between columns and at both ends


def _heading(head: _Head) -> str:
    return "\n".join(filter(None, head))


def _table(title: str, heads: Sequence[_Head], texts: Sequence[Sequence[str]], numbers: Sequence[bool],
           console_width: int) -> Table:
    """A table that rich crops nowhere: of a least width it would take back what it took from the widest column."""
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD)
    widths = [_min_width(head, [row[index] for row in texts]) for index, head in enumerate(heads)]
    full_widths = [max(width, *map(len, _heading(head).split("\n")))
                   for width, head in zip(widths, heads, strict=True)]
    is_fixed = _width(widths) <= console_width < _width(full_widths)
    for width, head, is_number in zip(widths, heads, numbers, strict=True):
        table.add_column(escape(_heading(head)), justify="right" if is_number else "left", vertical="bottom",
                         width=width if is_fixed else None)
    for row in texts:
        table.add_row(*map(escape, row))
    return table


def _text(cell: Cell, notes: list[str]) -> str:
    """The text of a cell; for an empty one the reason, or the number of a note with the reason."""
    if not cell.why:
        return cell.text
    brief = cell.why.split(" (")[0]
    if len(brief) <= _MAX_REASON_CHARACTERS:
        return brief
    if cell.why not in notes:
        notes.append(cell.why)
    return f"{cell.text} [{notes.index(cell.why) + 1}]"
