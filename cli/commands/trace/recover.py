"""`blkreel recover`: complete a trace after a crash."""

from pathlib import Path

import click

from blkreel.capture import ledger
from blkreel.cli.options.types import as_json, force
from blkreel.common.command_line import command_line
from blkreel.common.errors import TraceError
from blkreel.common.files.json_file import print_json
from blkreel.common.files.output_lock import spool_of
from blkreel.common.printable import printable
from blkreel.common.units import counted
from blkreel.replay.run.account import recounted
from blkreel.traces.format.reader import BASELINE, RUN_RECORDS, TEST, open_trace
from blkreel.traces.spool.spool import recover
from blkreel.traces.telemetry.reader import recover_telemetry
from blkreel.traces.telemetry.spool import spool_of as telemetry_spool_of


@click.command()
@click.argument("output", type=click.Path(readable=False, path_type=Path))
@force
@as_json
def command(output: Path, force: bool, as_json: bool) -> None:
    """Complete the trace of a capture or replay that was killed, from the data that it had written.

    OUTPUT: the output that the capture or the replay was given. At most the last 100 ms of a capture or the last
    second of a replay are lost; the trace records which. The telemetry of a run is completed too. Continue a test
    with --resume, and repetitions with the same command.

    \b
    blkreel recover game.parquet
    blkreel recover run/
    """
    output = _records_of(output)
    is_run = output.name == RUN_RECORDS
    telemetry = recover_telemetry(output.parent) if is_run and not spool_of(output).is_dir() else None
    if telemetry:
        path, rows = None, None
    else:
        path = recover(output, force=force, ended=ledger.ended, recounted=recounted)
        rows = open_trace(path).rows
        telemetry = recover_telemetry(output.parent) if is_run else None
    if as_json:
        print_json({"version": 1, "path": str(path) if path else None, "rows": rows,
                    "telemetry": str(telemetry) if telemetry else None})
    elif path and rows is not None:
        print(f"{printable(path)}: {counted(rows, 'I/O')} recovered")
    else:
        print(f"{printable(telemetry)}: recovered")


def _records_of(output: Path) -> Path:
    """The trace of an output: of the directory of a run its records, or those of its baseline."""
    if not output.is_dir() or output.name.endswith(".spool"):
        return output
    records = output / RUN_RECORDS
    unfinished = [path for path in (records, output / BASELINE / RUN_RECORDS)
                  if spool_of(path).is_dir() or telemetry_spool_of(path.parent).is_file()]
    if unfinished:
        return unfinished[0]
    if (output / TEST).is_file():
        raise TraceError(f"{output} is a test: a step is run again, not recovered",
                         f"continue it: {command_line('test', '--resume', output)}")
    inside = sorted(path for path in output.iterdir() if path.is_dir() and spool_of(path / RUN_RECORDS).is_dir())
    if inside:
        raise TraceError(f"{output} is not a run, but has unfinished runs",
                         f"name one: {command_line('recover', inside[0])}")
    return records
