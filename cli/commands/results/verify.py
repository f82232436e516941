"""`blkreel results verify`: whether the files of a catalog are what was added."""

from pathlib import Path

import click

from blkreel.benchmarks.catalog.verify import verify
from blkreel.cli.options import catalog as options
from blkreel.cli.options.types import as_json
from blkreel.cli.ui.progress import progress
from blkreel.common.files.json_file import print_json
from blkreel.common.printable import printable


@click.command()
@options.catalog
@click.option("--runs/--no-runs", default=True, show_default=True,
              help="Recompute the metrics of runs and tests that are still in their directories.")
@click.option("--repair", is_flag=True, help="Add results with a problem again from their runs, where these are "
                                             "unchanged.")
@as_json
def command(catalog: Path | None, runs: bool, repair: bool, as_json: bool) -> int:
    """Check the files of a catalog: checksums, ids, and metrics from partials and from runs.

    Finds results that were edited by hand, damaged, renamed or copied without their partial. The exit code is 1 if
    there are any. Nothing is changed without --repair.

    \b
    blkreel results verify
    blkreel results verify --catalog catalog/ --no-runs
    blkreel results verify --repair
    """
    opened = options.opened(catalog)
    with progress("verifying", total=1) as task:
        report = verify(opened, runs=runs, repair=repair, on_result=lambda done, total: task.update(
            done / max(1, total), f"{done:,} of {total:,} results"))
    if as_json:
        print_json({"version": 1, "catalog": str(opened.directory), **report.document()})
        return report.exit_code
    for problem in report.problems:
        print(printable(f"{problem.file}: {problem.message}; {problem.remedy}"))
    for name in report.repaired:
        print(printable(f"{name}: repaired from its run"))
    for note in report.notes:
        print(printable(f"note: {note}"))
    counts = (f"{report.results:,} result{'' if report.results == 1 else 's'}, {report.recomputed:,} recomputed from "
              "runs")
    count = len(report.problems)
    print(printable(f"{opened.directory}: {counts}, {count or 'no'} problem{'' if count == 1 else 's'}"))
    return report.exit_code
