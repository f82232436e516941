"""The results of a benchmark: computed, stored beside it, and printed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape

from blkreel.benchmarks.reports.results import results_of
from blkreel.benchmarks.results.document import Results
from blkreel.benchmarks.results.tables import Cell, TextTable, drive_line, text_table
from blkreel.benchmarks.runner.record import RESULTS
from blkreel.common.console import Console, Detail
from blkreel.common.errors import BlkreelError, os_errors
from blkreel.common.files.json_file import write_json
from blkreel.common.text_table import TextColumn, in_parts, lines_of, wrapped

from .progress import progress
from .replay_summary import verdict_lines

_REPEAT_COLUMNS = ("n", "Repeat")  # left out of a benchmark with one repeat
_MAX_TRANSPOSED_ROWS = 4
_MAX_REASON_CHARACTERS = 20  # in a cell; a longer reason is a note below the table


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
    cells_of = list(zip(*texts, strict=True))
    columns = [TextColumn(table.heads[index][0], cells_of[place], table.heads[index][1], table.is_number(index))
               for place, index in enumerate(visible)]
    if columns:
        _draw(table.title, columns, console)
    for number, note in enumerate(notes, 1):
        console.print(escape(f"  [{number}] {note}"), highlight=False)
    for reason, titles in empty.items():
        console.print(escape(f"  {', '.join(titles)}: {reason}"), highlight=False)


def _draw(title: str, columns: list[TextColumn], console: Console) -> None:
    """Draw a table that fits the console. If it is too wide, few rows are transposed, and more are drawn in parts."""
    if len(in_parts(columns, console.width)) > 1 and len(columns[0].cells) <= _MAX_TRANSPOSED_ROWS:
        first, *others = columns
        heads = [", ".join(filter(None, (column.title, column.unit))) for column in others]
        names = [f"{cell} {first.unit}".rstrip() for cell in first.cells]
        columns = [TextColumn(first.title, heads, right=False),
                   *(TextColumn(name, [column.cells[row] for column in others]) for row, name in enumerate(names))]
    console.print()
    console.print_lines(f"[italic]{escape(line)}[/]" for line in wrapped(title, console.width))
    for part in in_parts(columns, console.width):
        console.print_lines(lines_of(part))


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
