"""`blkreel merge`: write traces at the same time into one."""

from pathlib import Path

import click

from blkreel.cli.options import completion
from blkreel.cli.options.merging import onto
from blkreel.cli.options.types import OUTPUT, as_json, force, public
from blkreel.cli.ui.transform_summary import show_transformed
from blkreel.traces.format.reader import open_trace
from blkreel.traces.transform.merge import ALIGNMENTS, merge


@click.command()
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=click.Path(readable=False),
                shell_complete=completion.traces)
@click.option("-o", "--output", required=True, type=OUTPUT, help="Trace to write.")
@click.option("--align", type=click.Choice(ALIGNMENTS), default="clock", show_default=True,
              help="clock: at the times of the recordings. start: the first I/Os of all traces at one time.")
@onto
@force
@public
@as_json
def command(traces: tuple[str, ...], output: Path, align: str, onto: str, force: bool, public: bool,
            as_json: bool) -> None:
    """Combine traces into one whose I/Os run at the same time.

    Traces of one boot of a machine share a clock. Others are aligned by their wall clocks, whose uncertainty is
    printed, or by --align start. Each trace keeps its devices, threads and files.

    \b
    blkreel merge game.parquet download.parquet -o both.parquet --align start
    blkreel merge a.parquet b.parquet -o both.parquet --onto one
    """
    result = merge([open_trace(trace) for trace in traces], output, align=align, onto_one=onto == "one", force=force,
                   public=public)
    show_transformed(result, as_json)
