"""`blkreel demo`."""

from pathlib import Path

import click


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default="demo-out", show_default=True,
              help="Directory for the trace, the runs and the report. What an earlier demo left in it is replaced.")
@click.option("--quick", is_flag=True, help="Smaller drives and a shorter workload: about a minute and a half.")
@click.option("--work", type=click.Path(path_type=Path, exists=True, file_okay=False), default="/var/tmp",
              show_default=True, help="Directory on a disk for the drives' images; nothing stays there.")
def command(output, quick, work):
    """From a real application to a comparison report, on scratch drives.

    Makes three small loop drives; captures an application that is launched from the first while a torrent downloads to
    it; prepares the other two, one in memory and one on disk; replays on them the capture, with original timing and
    with idle times capped at 25 ms, and two of the traces that ship; compares. Takes some minutes, asks nothing, needs
    root, and removes its drives whatever happens.

    Ends with 0, or with 3 if a step is done but not trustworthy (a warning says which).

    \b
    sudo blkreel demo
    sudo blkreel demo --quick -o /tmp/demo-out
    """
    # Here and not above: `blkreel demo --help` must not wait for pyarrow.
    from blkreel.cli.demo.run import FULL, QUICK, run_demo

    return run_demo(output, work, QUICK if quick else FULL)
