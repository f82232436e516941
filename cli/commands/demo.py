"""`blkreel demo`: the whole workflow on scratch drives."""

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

import click

from blkreel.cli.options.types import OUTPUT, as_json
from blkreel.common.files.json_file import print_json


@click.command()
@click.option("-o", "--output", type=OUTPUT, default="demo-out", show_default=True,
              help="Directory for the trace, the runs and the report. Results of an earlier demo are replaced.")
@click.option("--quick", is_flag=True, help="Use a smaller dataset and fewer runs.")
@click.option("--work", type=click.Path(path_type=Path, exists=True, file_okay=False), default="/var/tmp",
              show_default=True, help="Directory on a disk for the image of the drive. It is removed at the end.")
@as_json
def command(output: Path, quick: bool, work: Path, as_json: bool) -> int:
    """Run the whole workflow on scratch drives: capture, replay, compare with the program itself.

    Captures a program that scans a dataset on a loop drive, an image on disk. Runs the program and replays the capture
    on that drive and on an emulated SATA QLC drive, alone and beside writes of 110 MB/s, as of a download at 1 Gbit/s.
    Then replays on nine typical drives, which are simulated. Prints the times of the program beside those of the
    replay, and the answer as the last line; the page has it as its title. Takes about three minutes, 1.5 GB on disk and
    1.5 GB of memory, and removes its drives even after a failure.

    Without /dev/fuse there is no emulated drive, and without root only the simulated drives; the output says so.
    Exit code 3 if a step is done but not trustworthy; the output names it.

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
