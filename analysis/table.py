"""The figures of a comparison or a report as tables in the terminal."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import numbers
from .classes import class_rows
from .columns import columns_of, drive_words, idle_words, state_words

WIDE = 4  # so many drives fit beside each other in 80 columns
_LEVEL_STYLE = {"valid": "green", "qualified": "yellow", "invalid": "bold red"}


def show_comparison(document: dict, console: Console) -> None:
    entries = [entry for section in document["sections"] for entry in section["entries"]]
    columns = columns_of(entries)
    for note in document["notes"]:
        console.print(f"Note: {note}")
    for section in document["sections"]:
        draw = _by_figure if len(section["entries"]) <= WIDE else _by_drive
        console.print(draw(section["title"], section["entries"], columns))
        _show_reasons(section["entries"], console)


def show_report(document: dict, console: Console) -> None:
    entry, figures = document["entry"], document["entry"]["figures"]
    table = Table(title=f"{entry['label']}: {drive_words(entry['drive'])}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for name in ("reads", "writes", "other"):
        table.add_column(name, justify="right")
    for label, cells in class_rows(figures):
        table.add_row(label, *(cell["text"] for cell in cells))
    console.print(table)
    console.print(f"Data rate {numbers.digits(figures['all']['data_rate_by_busy_mb_s'])} MB/s while busy, "
                  f"{numbers.digits(figures['all']['data_rate_by_wall_mb_s'])} MB/s over "
                  f"{numbers.duration(figures['all']['makespan_ns'])}")
    _show_reasons([entry], console)


def _by_figure(title, entries, columns):
    """One column per drive."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for entry in entries:
        table.add_column(entry["label"], justify="right")
    for column in columns:
        table.add_row(f"{column.title}, {column.unit}", *(_text(column, entry) for entry in entries))
    if entries[0]["idle"]:
        table.add_row("Idle", *(idle_words(entry["idle"]) for entry in entries))
        table.add_row("State before", *(state_words(entry["state"]) for entry in entries))
    table.add_row("Verdict", *(_verdict(entry) for entry in entries))
    return table


def _by_drive(title, entries, columns):
    """One row per drive."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for column in columns:
        table.add_column(f"{column.title}\n{column.unit}", justify="right")
    table.add_column("Verdict")
    for entry in entries:
        table.add_row(entry["label"], *(_text(column, entry) for column in columns), _verdict(entry))
    return table


def _text(column, entry):
    cell = column.cell(entry)
    return cell["note"] if cell["value"] is None else f"{cell['text']}{' *' if 'fell behind' in cell['note'] else ''}"


def _verdict(entry):
    level = entry["verdict"]["level"]
    return f"[{_LEVEL_STYLE[level]}]{level}[/]"


def _show_reasons(entries, console):
    """Each reason once, with the drives it holds for."""
    held = {}
    for entry in entries:
        for reason in entry["verdict"]["reasons"]:
            held.setdefault((reason["level"], reason["text"]), []).append(entry["label"])
    for (level, text), labels in held.items():
        whose = "" if len(entries) == 1 else f" ({', '.join(labels)})" if len(labels) < len(entries) else " (all)"
        console.print(f"[{_LEVEL_STYLE[level]}]{level}[/]: {escape(text + whose)}", highlight=False)
