"""`blkreel recover`: finish a trace whose writer died."""

import click

from blkreel.cli.options import force
from blkreel.traces.reader import open_trace
from blkreel.traces.spool import recover


@click.command()
@click.argument("output", type=click.Path(readable=False))
@force
def command(output, force):
    """Finish the trace of a capture or a replay that was killed, from what it had written.

    OUTPUT is the name that the capture was given. At most the last second is missing.

    \b
    blkreel recover game.parquet
    blkreel recover run/records.parquet
    """
    path = recover(output, force=force)
    print(f"{path}: {open_trace(path).rows:,} I/Os recovered")
