"""`blkreel model-drive`: fit a simulated drive to runs of a real one."""

from dataclasses import asdict
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
from blkreel.replay.predict.fit import fit_drives
from blkreel.replay.predict.measured_run import same_drive, with_baselines
from blkreel.replay.predict.prediction import CheckedErrors, checked, file_text
from blkreel.traces.format.writer import output_errors, refuse_output


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(readable=False))
@click.option("-o", "--output", required=True, type=OUTPUT, metavar="DRIVE.toml", help="File of the drive to write.")
@force
@as_json
def command(runs: tuple[str, ...], output: Path, force: bool, as_json: bool) -> None:
    """Fit a simulated drive to runs on a real one, for `blkreel predict` and for --on nil:DRIVE.toml.

    Fitted are the latencies of reads, writes and flushes with their spread, the bandwidths, the number of I/Os that
    the drive works on at once, and how much longer reads take beside writes: best from runs with --background and
    --baseline, with reads of several sizes, whose slowdown is predicted too: it is withheld where the runs leave it
    open. Not fitted are write caches, the decline under long writes, heat and
    the intervals between stalls. With runs of several traces, each trace is predicted by a fit to the others, and the
    largest error is written to the file.

    \b
    blkreel model-drive runs/game runs/compile runs/download -o drive.toml
    blkreel predict trace.parquet drive.toml
    """
    refuse_output(output, force)
    measured = with_baselines(runs)
    drive = same_drive(measured)
    models = fit_drives(measured, progress)
    errors = checked(measured, models, progress)
    text = file_text(measured, models[0].words(), drive, errors, __version__)
    with output_errors(output):
        write_output(output, text, force=force, owner=caller_of_sudo())
    if as_json:
        print_json({"version": 1, "path": str(output), "drive": dict(drive), "model": models[0].words(),
                    "held_out": errors.held_out, "largest_error": errors.largest(),
                    "runs": [{"run": run.run, "load_time_error": run.load_time, "read_p99_error": run.read_p99,
                              "slowdown_by_writes": run.slowdown and {
                                  **asdict(run.slowdown), "is_decided": run.slowdown.is_decided}}
                             for run in errors.runs]})
        return
    name = drive.get("model") or drive.get("name")
    print(printable(f"{output}: {name}, fitted to {len(measured)} run{'s' * (len(measured) > 1)}"))
    print(_error_line(errors))
    for run in errors.runs:
        if run.slowdown and not run.slowdown.is_decided:
            print(printable(f"left open by the fitted runs: slowdown by writes of {run.run}, {run.slowdown.low:.2f} to "
                            f"{run.slowdown.high:.2f} (measured {run.slowdown.measured:.2f}): fit a run with reads of "
                            "its sizes"))
    print(f"next: {command_line('predict', 'TRACE', output)}")


def _error_line(errors: CheckedErrors) -> str:
    largest = errors.largest()
    figures = ", ".join(f"{METRICS[key].title} {error * 100:.1f} %" for key, error in largest.items())
    of = ("of traces that were not fitted" if errors.held_out else
          "of the fitted trace itself: fit runs of other traces too")
    return f"largest error: {figures}, {of}"
