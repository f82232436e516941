"""`blkreel power`: put the log of a meter to a run or a test that has ended."""

import json
from pathlib import Path

import click

from blkreel.analysis.results import is_test
from blkreel.cli.options import as_json
from blkreel.cli.test_results import write_results
from blkreel.replay.telemetry.later import add_power
from blkreel.replay.telemetry.power_log import parse_power_log
from blkreel.replay.testing_record import stored_document
from blkreel.traces.errors import BlkreelError, UsageError


@click.command()
@click.argument("directory", type=click.Path(readable=False, path_type=Path), metavar="RUN|TEST")
@click.option("--log", "log", required=True, metavar="FILE[,offset=SECONDS][,columns=TIME:WATTS]",
              help="A CSV of the meter, with times since 1970; of a run alone, also since its start. The offset is "
                   "added to them. Also columns=TIME:VOLTS*AMPERES.")
@as_json
def command(directory, log, as_json):
    """Put a meter's log to a run or to all runs of a test, and judge them again.

    Most meters give their log away when all is over, and from another machine, whose clock may be off. The records
    stay as they are; telemetry.parquet gets the samples, and amended.json says what became known.

    \b
    blkreel power runs/a --log meter.csv,offset=-1.5
    blkreel power tests/a --log meter.csv,columns=Timestamp:Voltage*Current
    """
    power_log = parse_power_log(log)
    if is_test(directory):
        told = _of_test(directory, power_log)
        if not any(one["power"] for one in told):
            raise BlkreelError(f"{power_log.path} tells the power of no step of {directory}: {told[0]['why']}",
                               told[0]["remedy"])
        write_results(directory)
    else:
        told = [{"run": str(directory), "power": add_power(directory, power_log)["telemetry"]["power"], "why": None}]
    if as_json:
        print(json.dumps({"version": 1, "runs": [{key: one[key] for key in ("run", "power", "why")} for one in told]}))
        return
    for one in told:
        power = one["power"]
        print(f"{one['run']}: " + (f"{power['average_w']:.3g} W on average, {power['energy_j']:.4g} J" if power
                                   else f"no power: {one['why']}"))


def _of_test(directory, log) -> list[dict]:
    """Each of its runs, as far as the log holds it. Raises where the log cannot be read at all."""
    steps = [step for step in stored_document(directory)["steps"] if step["status"] == "done" and step["directory"]]
    if not steps:
        raise UsageError(f"{directory} has no step that was measured", f"go on with: blkreel test --resume {directory}")
    if not log.is_absolute:
        raise UsageError(f"the times of {log.path} are not since 1970, and a test has several runs",
                         f"name one run of it: blkreel power {directory}/steps/NAME --log FILE,offset=SECONDS")
    told = []
    for step in steps:
        try:
            power, why, remedy = add_power(directory / step["directory"], log)["telemetry"]["power"], None, None
        except BlkreelError as error:
            power, why, remedy = None, error.message, error.remedy
        told.append({"run": str(directory / step["directory"]), "power": power, "why": why, "remedy": remedy})
    return told
