"""`blkreel report`: one trace or run."""

from pathlib import Path

import click

from blkreel.analysis import present, table
from blkreel.cli.pages import page_options, reading, result


@click.command()
@click.argument("trace", type=click.Path(readable=False, path_type=Path))
@page_options
def command(trace, output, gap_ns, force, as_json):
    """Show one trace, or one run of `blkreel replay`, as a page and a table.

    \b
    blkreel report game.parquet -o game.html
    blkreel report run/ -o run.html --force
    blkreel report run/ --gap 25ms --json
    """
    with reading([trace]) as on_rows:
        document = present.report(trace, output, gap_ns=gap_ns, force=force, on_rows=on_rows)
    result(document, table.show_report, output, as_json)
