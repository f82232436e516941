"""`blkreel power`: add a power-meter log to a finished run or test."""

from pathlib import Path
from typing import Any

import click

from blkreel.benchmarks.benchmark_file import read_test
from blkreel.benchmarks.results.directory import is_test
from blkreel.cli.options.types import as_json
from blkreel.cli.ui.benchmark_summary import write_results
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.files.json_file import print_json
from blkreel.common.printable import printable
from blkreel.replay.run.power import add_power
from blkreel.replay.telemetry.power.log import PowerLog, parse_power_log


@click.command()
@click.argument("directory", type=click.Path(readable=False, path_type=Path), metavar="RUN|TEST")
@click.option("--log", "log", required=True, metavar="FILE[,offset=SECONDS][,columns=TIME:WATTS]",
              help="CSV file of the meter. Its times count from 1970, or for a single run also from its start. The "
                   "offset is added to them. Also columns=TIME:VOLTS*AMPERES.")
@as_json
def command(directory: Path, log: str, as_json: bool) -> None:
    """Add a power-meter log to a finished run or test, and compute its verdict again.

    For meters that write their log at the end or on another machine. The offset corrects the clock of that
    machine. The records do not change: telemetry.parquet gets the samples, amended.json the new results.

    \b
    blkreel power runs/a --log meter.csv,offset=-1.5
    blkreel power tests/a --log meter.csv,columns=Timestamp:Voltage*Current
    """
    power_log = parse_power_log(log)
    if is_test(directory):
        runs = _add_to_test(directory, power_log)
        write_results(directory)
    else:
        runs = [{"run": str(directory), "power": add_power(directory, power_log)["telemetry"]["power"], "why": None}]
    if as_json:
        print_json({"version": 1, "runs": runs})
        return
    for run in runs:
        power = run["power"]
        text = (f"{power['average_w']:.3g} W on average, {power['energy_j']:.4g} J" if power
                else f"no power: {run['why']}")
        print(printable(f"{run['run']}: {text}"))


def _add_to_test(directory: Path, log: PowerLog) -> list[dict[str, Any]]:
    """Add the log to each measured step. Raises BlkreelError if it covers none of them."""
    directories = [directory / step["directory"] for step in read_test(directory)[0]["steps"]
                   if step["status"] == "done" and step["directory"]]
    if not directories:
        raise UsageError(f"{directory}: no measured step", f"continue the test: blkreel test --resume {directory}")
    if not log.is_absolute:
        raise UsageError(f"{log.path}: its times do not count from 1970, and a test has several runs",
                         f"name one run: blkreel power {directory}/steps/NAME --log FILE,offset=SECONDS")
    runs: list[dict[str, Any]] = []
    errors = []
    for run_directory in directories:
        power, why = None, None
        try:
            power = add_power(run_directory, log)["telemetry"]["power"]
        except BlkreelError as error:
            why = error.message
            errors.append(error)
        runs.append({"run": str(run_directory), "power": power, "why": why})
    if not any(run["power"] for run in runs):
        raise BlkreelError(f"{log.path}: no power for any step of {directory}: {runs[0]['why']}",
                           errors[0].remedy if errors else None)
    return runs
