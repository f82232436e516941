"""`blkreel recover`: complete a trace after a crash."""

from pathlib import Path

import click

from blkreel.capture import ledger
from blkreel.cli.options.types import as_json, force
from blkreel.common.json_file import print_json
from blkreel.common.printable import printable
from blkreel.traces.format.reader import RUN_RECORDS, open_trace
from blkreel.traces.spool.spool import recover, spool_of
from blkreel.traces.telemetry.reader import recover_telemetry


@click.command()
@click.argument("output", type=click.Path(readable=False, path_type=Path))
@force
@as_json
def command(output: Path, force: bool, as_json: bool) -> None:
    """Complete the trace of a capture or replay that was killed, from the data that it had written.

    OUTPUT: the output name of the capture, or RUN/records.parquet. At most the last 100 ms of a capture or the
    last second of a replay are lost; the trace records which. The telemetry of a run is completed too.

    \b
    blkreel recover game.parquet
    blkreel recover run/records.parquet
    """
    is_run = output.name == RUN_RECORDS
    telemetry = recover_telemetry(output.parent) if is_run and not spool_of(output).is_dir() else None
    if telemetry:
        path, rows = None, None
    else:
        path = recover(output, force=force, ended=ledger.ended)
        rows = open_trace(path).rows
        telemetry = recover_telemetry(output.parent) if is_run else None
    if as_json:
        print_json({"version": 1, "path": str(path) if path else None, "rows": rows,
                    "telemetry": str(telemetry) if telemetry else None})
    elif path:
        print(f"{printable(path)}: {rows:,} I/Os recovered")
    else:
        print(f"{printable(telemetry)}: recovered")
