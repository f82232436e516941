"""`blkreel demo`: the whole workflow on scratch drives."""

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

import click

from blkreel.cli.options.types import OUTPUT, as_json
from blkreel.common.json_file import print_json


@click.command()
@click.option("-o", "--output", type=OUTPUT, default="demo-out", show_default=True,
              help="Directory for the trace, the runs and the report. Results of an earlier demo are replaced.")
@click.option("--quick", is_flag=True, help="Use a shorter workload.")
@click.option("--work", type=click.Path(path_type=Path, exists=True, file_okay=False), default="/var/tmp",
              show_default=True, help="Directory on a disk for the images of the drives. They are removed at the end.")
@as_json
def command(output: Path, quick: bool, work: Path, as_json: bool) -> int:
    """Run the whole workflow on scratch drives: capture, precondition, replay, compare.

    Creates three small loop drives. Captures an application that starts from the first one while a torrent
    downloads to it. Preconditions the other two, one in memory and one on disk, and replays on each a game that
    loads (load time, and how much of it the drive adds), the captured application at original pace, and the game
    during a download with and without the download's writes. Prints a comparison, the answer and the path of the
    page. Takes under two minutes, needs root, and removes its drives even after a failure.

    Exit code 3 if a step is done but not trustworthy; a warning names it.

    \b
    sudo blkreel demo
    sudo blkreel demo --quick -o /tmp/demo-out
    """
    # Imported late: `blkreel demo --help` must not wait for pyarrow.
    from blkreel.cli.demo.run import FULL, QUICK, run_demo
    from blkreel.traces.format.reader import RUN_RECORDS

    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        exit_code = run_demo(output, work, QUICK if quick else FULL)
    if as_json:
        print_json({"version": 1, "path": str(output), "trustworthy": not exit_code,
                    "traces": sorted(map(str, output.glob("*.parquet"))),
                    "runs": sorted(str(records.parent) for records in output.glob(f"**/{RUN_RECORDS}")),
                    "pages": sorted(map(str, output.glob("*.html")))})
    return exit_code
