"""`blkreel report`: one trace or run, or the results of one test."""

import click

from blkreel.analysis import present, table
from blkreel.analysis.results import is_test
from blkreel.cli import test_shown
from blkreel.cli.pages import page_options, reading, result
from blkreel.cli.progress import progress
from blkreel.cli.scale_options import TRACE, scale_options


@click.command()
@click.argument("trace", type=TRACE)
@page_options
@scale_options
def command(trace, output, figure, gap_ns, force, as_json, view, way):
    """Show one trace, one run of `blkreel replay` or the results of one `blkreel test` as a page and a table.

    \b
    blkreel report game.parquet -o game.html
    blkreel report run/ -o run.html --force
    blkreel report run/ --format svg --chart read-tail -o tail.svg
    blkreel report run/ --format csv -o tables/
    blkreel report run/ --figure read.bursts.throughput_mb_s
    blkreel report run/ --gap 25ms --json
    """
    if is_test(trace):
        with progress("reading", total=1) as task:
            document = present.report_test(
                trace, output, force=force, view=view,
                on_step=lambda done, total: task.update(done / max(1, total), f"{done} of {total} steps"))
        result(document, test_shown.show, output, as_json, view, figure)
        return
    with reading() as on_rows:
        document = present.report(trace, output, gap_ns=gap_ns, force=force, on_rows=on_rows, view=view, way=way)
    result(document, table.show_report, output, as_json, view, figure)
