"""Options of commands that record telemetry beside a run."""

import functools
import sys
from typing import Any

import click

from blkreel.common.device import SYS
from blkreel.common.errors import UsageError
from blkreel.replay.telemetry.options import TelemetryOptions, parse_sample_hz
from blkreel.replay.telemetry.power.log import parse_power_log
from blkreel.replay.telemetry.power.rails import rail_named

from .types import CommandFunction, add_options

_OPTIONS = (
    click.option("--power-command", metavar="COMMAND",
                 help="Shell command that prints lines of `seconds watts` during the replay."),
    click.option("--power-log", metavar="FILE[,offset=SECONDS][,columns=TIME:WATTS]",
                 help="CSV file of a power meter, read after the run. Its times, plus the offset, count from 1970 or "
                      "from the start of the run. Also columns=TIME:VOLTS*AMPERES."),
    click.option("--power-sensor", metavar="CHIP-LABEL",
                 help="The hwmon or powercap rail that feeds the drive, as named by `blkreel doctor`."),
    click.option("--sample", default="2Hz", show_default=True, metavar="RATE",
                 help="Sample rate of power, link and external I/O, 1 to 50 Hz; of the temperature at most 1 Hz."),
    click.option("--ocp-log", is_flag=True,
                 help="Query the OCP logs of an NVMe drive that does not list its log pages. A drive without them "
                      "counts an error."),
)


def telemetry_options(command: CommandFunction) -> CommandFunction:
    """Add the options; the command gets them as one argument `telemetry`, a TelemetryOptions."""
    @functools.wraps(command)
    def with_telemetry(*arguments: Any, power_command: str | None, power_log: str | None, power_sensor: str | None,
                       sample: str, ocp_log: bool, **parameters: Any) -> Any:
        log = parse_power_log(power_log) if power_log else None
        telemetry = TelemetryOptions(sample_hz=parse_sample_hz(sample), power_command=power_command, power_log=log,
                                     power_sensor=power_sensor, ocp_log=ocp_log)
        if power_sensor and (missing := rail_named(power_sensor, SYS).missing):
            raise UsageError(missing[0].reason, "name another sensor or meter")
        if log is not None and not log.path.exists():
            print(f"blkreel: warning: {log.path} does not exist yet; it is read after the run", file=sys.stderr)
        return command(*arguments, telemetry=telemetry, **parameters)

    return add_options(with_telemetry, _OPTIONS)
