"""`blkreel concat`: write traces one after the other."""

from pathlib import Path

import click

from blkreel.cli.options import completion
from blkreel.cli.options.types import TIME_NS, as_json, force, onto, public, trace_output
from blkreel.cli.ui.trace_summary import show_transformed
from blkreel.traces.format.reader import open_trace
from blkreel.traces.transform.concat import concat


@click.command()
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=click.Path(readable=False),
                shell_complete=completion.traces)
@trace_output
@click.option("--pause", "pause_ns", type=TIME_NS, default=0, help="Idle time between two traces. [default: 0]")
@onto
@force
@public
@as_json
def command(traces: tuple[str, ...], output: Path, pause_ns: int, onto: str, force: bool, public: bool,
            as_json: bool) -> None:
    """Join traces into one, each after the end of the one before.

    Consecutive slices of one trace keep their times, and the dependencies between them are restored. Any other trace
    begins after the last completion of the one before it. Each trace keeps its devices, threads and files.

    \b
    blkreel concat boot.parquet game.parquet -o evening.parquet --pause 1s
    blkreel concat a.parquet b.parquet -o both.parquet --onto one
    """
    result = concat([open_trace(trace) for trace in traces], output, pause_ns=pause_ns, onto_one=onto == "one",
                    force=force, public=public)
    show_transformed(result, as_json)
