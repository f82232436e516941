"""`blkreel model-drive`: fit a simulated drive to runs of a real one."""

from pathlib import Path

import click

from blkreel import __version__
from blkreel.analysis.metrics.definitions.registry import METRICS
from blkreel.cli.options.types import OUTPUT, as_json, force
from blkreel.cli.ui.progress import progress
from blkreel.common.command_line import command_line
from blkreel.common.files.json_file import print_json
from blkreel.common.files.output_lock import write_output
from blkreel.common.files.safe_files import caller_of_sudo
from blkreel.common.printable import printable
from blkreel.replay.predict.fit import fit_drive, same_drive
from blkreel.replay.predict.prediction import CheckedErrors, checked, file_text, with_baselines
from blkreel.traces.format.writer import refuse_output


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(readable=False))
@click.option("-o", "--output", required=True, type=OUTPUT, metavar="DRIVE.toml", help="File of the drive to write.")
@force
@as_json
def command(runs: tuple[str, ...], output: Path, force: bool, as_json: bool) -> None:
    """Fit a simulated drive to runs on a real one, for `blkreel predict` and for --on nil:DRIVE.toml.

    Fitted are the latencies of reads, writes and flushes with their spread, the bandwidths, the number of I/Os that
    the drive works on at once, and how much longer reads take beside writes: best from runs with --background and
    --baseline, whose slowdown is predicted too. Not fitted are write caches, the decline under long writes, heat and
    the intervals between stalls. With runs of several traces, each trace is predicted by a fit to the others, and the
    largest error is written to the file.

    \b
    blkreel model-drive runs/game runs/compile runs/download -o drive.toml
    blkreel predict trace.parquet drive.toml
    """
    refuse_output(output, force)
    measured = with_baselines(runs)
    drive = same_drive(measured)
    model = fit_drive(measured, progress)
    errors = checked(measured, progress)
    text = file_text(measured, model.words(), drive, errors, __version__)
    write_output(output, text, force=force, owner=caller_of_sudo())
    if as_json:
        print_json({"version": 1, "path": str(output), "drive": dict(drive), "model": model.words(),
                    "held_out": errors.held_out, "largest_error": errors.largest(),
                    "runs": [{"run": run.run, "load_time_error": run.load_time, "read_p99_error": run.read_p99,
                              "slowdown_by_writes": run.slowdown and {
                                  "predicted": run.slowdown[0], "measured": run.slowdown[1]}} for run in errors.runs]})
        return
    name = drive.get("model") or drive.get("name")
    print(printable(f"{output}: {name}, fitted to {len(measured)} run{'s' * (len(measured) > 1)}"))
    print(_error_line(errors))
    print(f"next: {command_line('predict', 'TRACE', output)}")


def _error_line(errors: CheckedErrors) -> str:
    largest = errors.largest()
    figures = ", ".join(f"{METRICS[key].title} {error * 100:.1f} %" for key, error in largest.items())
    of = ("of traces that were not fitted" if errors.held_out else
          "of the fitted trace itself: fit runs of other traces too")
    return f"largest error: {figures}, {of}"
