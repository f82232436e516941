"""`blkreel compare`: many runs side by side."""

from pathlib import Path

import click

from blkreel.analysis import present, table
from blkreel.analysis.results import is_test
from blkreel.cli import test_shown
from blkreel.cli.pages import page_options, reading, result
from blkreel.cli.progress import progress
from blkreel.traces.errors import UsageError


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(readable=False, path_type=Path))
@page_options
def command(runs, output, figure, gap_ns, force, as_json, view):
    """Show runs or traces side by side as a page and a table, each drive and pace apart.

    RUNS are directories made by `blkreel replay -o`, or traces. Runs of one drive, state and pace count as
    repetitions; figures of different traces or paces never stand in one chart. Or all of them are directories of one
    test, made by `blkreel test -o`: then its results stand side by side.

    \b
    blkreel compare run-a/ run-b/ -o compare.html
    blkreel compare runs/*/ -o compare.html --force --highlight "WD Black" --drives drives.toml
    blkreel compare runs/*/ --format png -o pictures/
    blkreel compare run-a/ run-b/ --json
    blkreel compare tests/mixed-burst-a/ tests/mixed-burst-b/
    """
    tests = [path for path in runs if is_test(path)]
    if tests:
        if len(tests) < len(runs):
            other = next(path for path in runs if path not in tests)
            raise UsageError(f"{tests[0]} is a test, {other} is not",
                             f"compare tests with tests; runs of its steps are {tests[0]}/steps/*")
        with progress("reading", total=len(tests)) as task:
            order = {str(path): index for index, path in enumerate(tests)}
            document = present.compare_tests(
                tests, output, force=force, view=view, on_step=lambda path, done, total: task.update(
                    order[path] + done / max(1, total), f"{path}: {done} of {total} steps"))
        result(document, test_shown.show, output, as_json, view, figure)
        return
    with reading(runs) as on_rows:
        document = present.compare(runs, output, gap_ns=gap_ns, force=force, on_rows=on_rows, view=view)
    result(document, table.show_comparison, output, as_json, view, figure)
