"""`blkreel results list`: the results of a catalog."""

from pathlib import Path
from typing import Any

import click
import pyarrow.compute as pc

from blkreel.benchmarks.catalog.tables import matching
from blkreel.cli.options import catalog as options
from blkreel.cli.options.detail import detail_options
from blkreel.cli.options.types import NOT_TRUSTWORTHY, as_json
from blkreel.common import text_table, units
from blkreel.common.console import Console, Detail
from blkreel.common.files.json_file import print_json
from blkreel.common.printable import printable
from blkreel.common.text_table import TextColumn

_MOST_ROWS = 40
_FEWEST_LETTERS = 8  # of a name that is cut
_STYLES = {"valid": "", "qualified": "yellow", "invalid": "red"}
_OF_FILES = ("file_bytes", "file_mtime_ns", "file_sha256")


@click.command()
@options.catalog
@options.drive
@options.workload
@detail_options("everything")
@as_json
def command(catalog: Path | None, drive_texts: tuple[str, ...], workload_texts: tuple[str, ...],
            detail: Detail, as_json: bool) -> int:
    """List the results of a catalog, the newest first: at most 40 without --all.

    Files that cannot be read are named, and the exit code is 3.

    \b
    blkreel results list
    blkreel results list --catalog catalog/ --drive 990 --workload "game load"
    blkreel results list --json | jq '.results[] | select(.verdict == "invalid")'
    """
    opened = options.opened(catalog)
    table = matching(opened.result_table(), drive_texts, workload_texts)
    table = table.take(pc.sort_indices(table.select(["started_at", "id"]), [
        ("started_at", "descending"), ("id", "ascending")]))
    rows_listed = table if detail.everything or as_json else table.slice(0, _MOST_ROWS)
    rows = rows_listed.drop_columns(list(_OF_FILES)).to_pylist()
    options.warn_damaged(opened.damaged.values())
    if as_json:
        print_json({"version": 1, "catalog": str(opened.directory), "results": rows,
                    "damaged": [{"file": str(path), "message": error.message, "remedy": error.remedy}
                                for path, error in opened.damaged.items()]})
    else:
        console = Console()
        if rows:
            columns = _columns(rows) if detail.everything else _fitting(rows, console.width)
            for part in text_table.in_parts(columns, console.width):
                console.print_lines(text_table.lines_of(part))
        left = f", {table.num_rows - len(rows)} more: --all" if table.num_rows > len(rows) else ""
        print(printable(f"{opened.directory}: {table.num_rows:,} result{'' if table.num_rows == 1 else 's'}{left}"))
    return NOT_TRUSTWORTHY if opened.damaged else 0


def _fitting(rows: list[dict[str, Any]], width: int) -> list[TextColumn]:
    """The columns that fit, and drive, workload, value and verdict in any case: without one of them a result says
    nothing. Long names are cut."""
    columns = _columns(rows)
    id_, drive, workload, headline, verdict = columns[:5]
    room = width - id_.width - headline.width - verdict.width - 4 * text_table.GAP
    if drive.width + workload.width > room:
        # Half of the room for each name, and more for one if the other is shorter.
        most = max(_FEWEST_LETTERS, room // 2, room - min(drive.width, workload.width))
        columns = _columns([{**row, **{
            key: text_table.shortened(row[key], most) for key in ("label", "workload_title")}} for row in rows])
    fitting = text_table.fitting(columns, width)
    return fitting if fitting[:5] == columns[:5] else columns[:5]


def _columns(rows: list[dict[str, Any]]) -> list[TextColumn]:
    def column(title: str, cells: list[str], **more: Any) -> TextColumn:
        return TextColumn(title, [printable(cell) for cell in cells], right=False, **more)

    return [column("id", [row["id"][:12] for row in rows]),
            column("drive", [row["label"] for row in rows]),
            column("workload", [row["workload_title"] for row in rows]),
            column("headline", [headline_words(row) for row in rows]),
            column("verdict", [row["verdict"] for row in rows], styles=[_STYLES[row["verdict"]] for row in rows]),
            column("date", [(row["started_at"] or "")[:10] for row in rows]),
            column("firmware", [row["firmware"] for row in rows]),
            column("state", [row["state"] for row in rows]),
            column("pace", [row["pace"] for row in rows]),
            column("model", [row["model"] for row in rows]),
            column("host", [row["host"] for row in rows])]


def headline_words(row: dict[str, Any]) -> str:
    """`read wait 1.25 s` of a row; empty without a value."""
    if row["headline_value"] is None:
        return ""
    return f"{row['headline'].replace('_', ' ')} {value_words(row['headline_value'], row['headline_unit'])}"


def value_words(value: float, unit: str) -> str:
    """A value of a metric in its unit, as in reports."""
    if unit == "ns":
        return units.duration(value)
    if unit == "bytes":
        return units.size(value)
    if not unit and value == int(value):
        return f"{int(value):,}"
    return f"{units.digits(value * 100 if unit == '%' else value)} {unit}".rstrip()
