"""`blkreel recover`: finish a trace whose writer died."""

import click

from blkreel.capture import ledger
from blkreel.cli.options import force
from blkreel.traces.reader import open_trace
from blkreel.traces.spool import recover


@click.command()
@click.argument("output", type=click.Path(readable=False))
@force
def command(output, force):
    """Finish the trace of a capture or a replay that was killed, from what it had written.

    OUTPUT is the name that the capture was given. What is missing, the trace says: nothing where the capture's
    helper came to its end, its last 100 ms where it was killed, a replay's last second.

    \b
    blkreel recover game.parquet
    blkreel recover run/records.parquet
    """
    path = recover(output, force=force, ended=ledger.ended)
    print(f"{path}: {open_trace(path).rows:,} I/Os recovered")
