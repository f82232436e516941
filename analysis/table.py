"""The figures of a comparison or a report as tables in the terminal."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import numbers
from .classes import class_rows
from .columns import columns_of, drive_words, idle_words, state_words
from .definitions import HEADLINE, LEADING
from .verdict import ENOUGH_RUNS

WIDE = 4  # so many drives fit beside each other in 80 columns
_LEVEL_STYLE = {"valid": "green", "qualified": "yellow", "invalid": "bold red"}


def show_comparison(document: dict, console: Console) -> None:
    entries = [entry for section in document["sections"] for entry in section["entries"]]
    columns = columns_of(entries)
    for note in document["notes"]:
        console.print(f"Note: {escape(note)}")
    for section in document["sections"]:
        draw = _by_figure if len(section["entries"]) <= WIDE else _by_drive
        console.print(draw(section["title"], section["entries"], columns))
        _show_ranks(section, console)
        _show_reasons(section["entries"], console)


def show_report(document: dict, console: Console) -> None:
    entry, figures = document["entry"], document["entry"]["figures"]
    title = escape(f"{entry['label']}: {drive_words(entry['drive'])}")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for name in ("reads", "writes", "other"):
        table.add_column(name, justify="right")
    for label, cells in class_rows(figures):
        table.add_row(label, *(cell["text"] for cell in cells))
    console.print(table)
    if figures["all"]["data_rate_by_busy_mb_s"] is not None:
        console.print(f"Data rate {numbers.digits(figures['all']['data_rate_by_busy_mb_s'])} MB/s while busy, "
                      f"{numbers.digits(figures['all']['data_rate_by_wall_mb_s'])} MB/s over "
                      f"{numbers.duration(figures['all']['makespan_ns'])}")
    _show_reasons([entry], console)


def _by_figure(title, entries, columns):
    """One column per drive."""
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for entry in entries:
        table.add_column(escape(entry["label"]), justify="right")
    for column in columns:
        table.add_row(f"{column.title}, {column.unit}", *(_text(column, entry) for entry in entries))
    if entries[0]["idle"]:
        table.add_row("Idle", *(idle_words(entry["idle"]) for entry in entries))
        table.add_row("State before", *(escape(state_words(entry["state"])) for entry in entries))
    table.add_row("Verdict", *(_verdict(entry) for entry in entries))
    return table


def _by_drive(title, entries, columns):
    """One row per drive."""
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for column in columns:
        table.add_column(f"{column.title}\n{column.unit}", justify="right")
    table.add_column("Verdict")
    for entry in entries:
        table.add_row(escape(entry["label"]), *(_text(column, entry) for column in columns), _verdict(entry))
    return table


def _text(column, entry):
    cell = column.cell(entry)
    if cell["value"] is None:
        return cell["note"]
    interval = f" ({cell['interval']})" if cell["interval"] else ""
    return f"{cell['text']}{interval}{' *' if 'fell behind' in cell['note'] else ''}"


def _show_ranks(section, console):
    """Who stands where in what the comparison leads with, and how sure that is; nothing where runs are too few."""
    if not any(entry["headline"][name]["low"] is not None for entry in section["entries"] for name in LEADING):
        return
    console.print("In brackets: 95 % interval of the geometric mean over runs; beside a percentile, which is of "
                  "the I/Os of all runs, that of the runs' own percentiles.", highlight=False)
    if len(section["entries"]) < 2:
        return
    for name in LEADING:
        if words := rank_words(section["entries"], name):
            console.print(f"{HEADLINE[name].title}: {escape(words)}", highlight=False)
    if len(section["entries"]) <= WIDE:
        for ratio in section["ratios"]:
            if ratio["figure"] in LEADING and ratio["low"] is not None:
                console.print(f"  {escape(ratio_words(ratio))}", highlight=False)


def rank_words(entries: list[dict], name: str) -> str:
    """"1 A, B (tie); 3 C"; drives without a rank at the end, with the reason. Empty where none has one."""
    groups, without = {}, []
    for entry in entries:
        rank = entry["headline"][name]["rank"]
        (groups.setdefault(rank, []) if rank else without).append(entry["label"])
    if not groups:
        return ""
    words = [f"{rank} {', '.join(groups[rank])}{' (tie)' if len(groups[rank]) > 1 else ''}" for rank in sorted(groups)]
    if without:
        words.append(f"without a rank, with fewer than {ENOUGH_RUNS} runs or without this figure: {', '.join(without)}")
    return "; ".join(words)


def ratio_words(ratio: dict) -> str:
    """"B against A, wait time: +12.0 % (+8.1 % to +16.2 %), they differ"."""
    value, low, high = (f"{(ratio[key] - 1) * 100:+.1f} %" for key in ("value", "low", "high"))
    said = "they differ" if ratio["differ"] else f"a tie: {ratio['why']}"
    title = HEADLINE[ratio["figure"]].title
    return f"{ratio['other']} against {ratio['base']}, {title[0].lower()}{title[1:]}: {value} ({low} to {high}), {said}"


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
