"""`blkreel recover`: finish a trace whose writer died."""

from pathlib import Path

import click

from blkreel.capture import ledger
from blkreel.cli.options import force
from blkreel.traces.reader import RUN_RECORDS, open_trace
from blkreel.traces.spool import recover, spool_of
from blkreel.traces.telemetry import recover_telemetry


@click.command()
@click.argument("output", type=click.Path(readable=False))
@force
def command(output, force):
    """Finish the trace of a capture or a replay that was killed, from what it had written.

    OUTPUT is the name that the capture was given. What is missing, the trace says: nothing where the capture's
    helper came to its end, its last 100 ms where it was killed, a replay's last second. A run's telemetry is finished
    with its records.

    \b
    blkreel recover game.parquet
    blkreel recover run/records.parquet
    """
    directory, name = Path(output).parent, Path(output).name
    if name == RUN_RECORDS and not spool_of(Path(output)).is_dir() and (told := recover_telemetry(directory)):
        print(f"{told}: recovered")
        return
    path = recover(output, force=force, ended=ledger.ended)
    if name == RUN_RECORDS:
        recover_telemetry(directory)
    print(f"{path}: {open_trace(path).rows:,} I/Os recovered")
