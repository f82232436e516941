"""The figures of a comparison or a report as tables in the terminal."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import numbers
from .columns import columns_of, drive_words, idle_words, state_words
from .summary import PERCENTILES

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


def class_rows(figures: dict) -> list[tuple[str, list[dict]]]:
    """(label, a cell each for reads, writes, other) of the figures of one run; the page shows the same rows."""
    classes = [figures[name] for name in ("read", "write", "other")]

    def row(label, pick, text, note=lambda one: ""):
        return label, [{"value": pick(one), "note": note(one),
                        "text": note(one) or (text(pick(one)) if one["ops"] else numbers.MISSING)} for one in classes]

    def rate(value):
        return numbers.MISSING if value is None else f"{numbers.digits(value)} MB/s"

    rows = [
        row("I/Os", lambda one: one["ops"], lambda value: f"{value:,}"),
        row("Bytes", lambda one: one["bytes"], numbers.size),
        row("Burst throughput", lambda one: one["bursts"]["throughput_mb_s"], rate),
        row("Throughput by busy time", lambda one: one["throughput_by_busy_mb_s"], rate),
        row("Total service time", lambda one: one["service_ns"], numbers.duration),
        row("Busy time", lambda one: one["busy_ns"], numbers.duration),
        row("Makespan", lambda one: one["makespan_ns"], numbers.duration),
        row("Mean busy depth", lambda one: one["mean_busy_depth"], numbers.digits),
        row("Bursts", lambda one: one["bursts"]["count"], lambda value: f"{value:,}"),
        row("… of these strays", lambda one: one["bursts"]["strays"]["count"], lambda value: f"{value:,}"),
        row("Wait: sum of burst makespans", lambda one: one["bursts"]["makespan_ns"], numbers.duration),
    ]
    for kind, title in (("latency", "Latency"), ("response", "Response"), ("queue", "In scheduler")):
        if not any(one[kind]["n"] for one in classes):
            continue
        for name in PERCENTILES:
            rows.append(row(f"{title} {name.replace('_', '.')}", lambda one, k=kind, p=name: one[k][f"{p}_ns"],
                            numbers.duration, lambda one, k=kind, p=name: _too_small(one[k], p)))
        rows.append(row(f"{title} max", lambda one, k=kind: one[k]["max_ns"], numbers.duration))
    for label, key in (("I/Os without completion", "unseen_ops"), ("I/Os failed", "error_ops")):
        if any(one[key] for one in classes):
            rows.append((label, [{"value": one[key], "note": "", "text": f"{one[key]:,}"} for one in classes]))
    return rows


def _too_small(shown, name):
    return f"n too small (n={shown['n']:,})" if shown["n"] and name in shown["too_small"] else ""


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
