"""`blkreel slice`: extract rows from a trace."""

from pathlib import Path

import click

from blkreel.cli.options import completion
from blkreel.cli.options.device import note_numbers
from blkreel.cli.options.types import TIME_NS, WORKLOAD_ONLY, as_json, force, public, trace_output
from blkreel.cli.ui.trace_summary import show_transformed
from blkreel.common.errors import UsageError
from blkreel.common.units import parse_size_bytes
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS
from blkreel.traces.transform.slice import Selection, slice_trace


@click.command()
@click.argument("trace", type=click.Path(readable=False), shell_complete=completion.traces)
@trace_output
@click.option("--from", "from_ns", type=TIME_NS, help="Only I/Os submitted at this time of the trace or later.")
@click.option("--to", "to_ns", type=TIME_NS, help="Only I/Os submitted before this time of the trace.")
@click.option("--process", "processes", multiple=True, metavar="NAME", help="Only I/Os of this process or thread name.")
@click.option("--tid", "tids", multiple=True, type=int, metavar="N", help="Only I/Os of this thread.")
@click.option("--workload-only", is_flag=True, help=WORKLOAD_ONLY)
@click.option("--device", "devices", multiple=True, type=int, metavar="N",
              help="Only I/Os of the device with this number: blkreel info.")
@click.option("--op", "ops", multiple=True, type=click.Choice(list(OPS)), help="Only I/Os of this operation.")
@click.option("--offset", metavar="A..B", help="Only I/Os that touch the range from offset A up to B.")
@click.option("--rebase", is_flag=True, help="Begin at time 0. [default: I/Os keep their times]")
@force
@public
@as_json
def command(trace: str, output: Path, from_ns: int | None, to_ns: int | None, processes: tuple[str, ...],
            tids: tuple[int, ...], workload_only: bool, devices: tuple[int, ...], ops: tuple[str, ...],
            offset: str | None, rebase: bool, force: bool, public: bool, as_json: bool) -> None:
    """Extract the I/Os of a trace that match all given options. --process, --tid, --device and --op can be repeated.

    A dependency on an I/O that does not match is cut: a dependent replay issues that I/O at its own time. Their number
    is printed. Consecutive slices by --from and --to become the original again by blkreel concat.

    \b
    blkreel slice game.parquet -o level.parquet --from 10s --to 70s
    blkreel slice game.parquet -o reads.parquet --workload-only --op read
    blkreel slice game.parquet -o start.parquet --offset 0..64GiB --rebase
    """
    selection = Selection(from_ns, to_ns, processes, tids, devices, ops,
                          _range_bytes(offset), workload_only)
    if from_ns is not None and to_ns is not None and to_ns <= from_ns:
        raise UsageError("--to is not later than --from", "give a later time, such as: --from 10s --to 70s")
    opened = open_trace(trace)
    note_numbers(opened, devices)
    result = slice_trace(opened, output, selection, rebase=rebase, force=force, public=public)
    show_transformed(result, as_json)


def _range_bytes(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    begin, dots, end = text.partition("..")
    if not dots:
        raise UsageError(f"invalid --offset: {text!r}", "give a range, such as: --offset 0..64GiB")
    bounds = parse_size_bytes(begin or "0"), parse_size_bytes(end) if end else 1 << 63
    if bounds[1] <= bounds[0]:
        raise UsageError(f"invalid --offset: {text!r} is empty", "give a range, such as: --offset 0..64GiB")
    return bounds
