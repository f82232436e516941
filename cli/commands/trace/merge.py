"""`blkreel merge`: write traces at the same time into one."""

import re
from pathlib import Path

import click

from blkreel.cli.options import completion
from blkreel.cli.options.types import as_json, force, onto, public, trace_output
from blkreel.cli.ui.trace_summary import show_transformed
from blkreel.common.errors import UsageError
from blkreel.common.units import parse_time_ns
from blkreel.traces.format.reader import open_trace
from blkreel.traces.transform.merge import ALIGNMENTS, merge


@click.command()
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=click.Path(readable=False),
                shell_complete=completion.traces)
@trace_output
@click.option("--align", type=click.Choice(ALIGNMENTS), default="clock", show_default=True,
              help="clock: at the times of the recordings. start: the first I/Os of all traces at one time.")
@click.option("--offset", "offsets", multiple=True, metavar="N=TIME",
              help="Start trace N (from 0, in the order named) later by this time: 1=2s. Repeatable.")
@click.option("--as-background", "backgrounds", multiple=True, type=int, metavar="N",
              help="Mark the I/Os of trace N as background: they are not workload I/O. Repeatable.")
@onto
@force
@public
@as_json
def command(traces: tuple[str, ...], output: Path, align: str, offsets: tuple[str, ...], backgrounds: tuple[int, ...],
            onto: str, force: bool, public: bool, as_json: bool) -> None:
    """Combine traces into one whose I/Os run at the same time.

    Traces of one boot of a machine share a clock. Others are aligned by their wall clocks, whose uncertainty is
    printed, or by --align start. Each trace keeps its devices, threads and files, and is a stream of its own, with a
    pace of its own in a replay: replay --pace 1:paced.

    \b
    blkreel merge game.parquet download.parquet -o both.parquet --align start
    blkreel merge a.parquet b.parquet -o both.parquet --onto one
    blkreel merge a.parquet b.parquet -o both.parquet --onto one --align start --offset 0=10s
    blkreel merge a.parquet b.parquet -o both.parquet --onto one --as-background 1
    """
    result = merge([open_trace(trace) for trace in traces], output, align=align, onto_one=onto == "one", force=force,
                   public=public, offsets_ns=dict(map(_offset, offsets)), backgrounds=backgrounds)
    show_transformed(result, as_json)


def _offset(text: str) -> tuple[int, int]:
    """`1=2s` as (1, ns). Raises UsageError."""
    match = re.fullmatch(r"(\d{1,6})=(.+)", text)
    if not match:
        raise UsageError(f"invalid --offset: {text!r}", "give the number of a trace and a time: --offset 1=2s")
    return int(match[1]), parse_time_ns(match[2])
