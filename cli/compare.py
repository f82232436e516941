"""`blkreel compare`: many runs side by side."""

from pathlib import Path

import click

from blkreel.analysis import present, table
from blkreel.analysis.results import is_test
from blkreel.cli.pages import page_options, reading, result
from blkreel.traces.errors import UsageError


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(readable=False, path_type=Path))
@page_options
def command(runs, output, gap_ns, force, as_json):
    """Show runs or traces side by side as a page and a table, each drive and pace apart.

    RUNS are directories made by `blkreel replay -o`, or traces. Runs of one drive, state and pace count as
    repetitions; figures of different traces or paces never stand in one chart.

    \b
    blkreel compare run-a/ run-b/ -o compare.html
    blkreel compare runs/*/ -o compare.html --force
    blkreel compare run-a/ run-b/ --json
    """
    for path in runs:
        if is_test(path):
            raise UsageError(f"{path} is a test of several runs, not one run",
                             f"blkreel report {path}, or compare runs of its steps: blkreel compare {path}/steps/*")
    with reading(runs) as on_rows:
        document = present.compare(runs, output, gap_ns=gap_ns, force=force, on_rows=on_rows)
    result(document, table.show_comparison, output, as_json)
