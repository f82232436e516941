"""Options of commands that measure beside a run: how often, and which meter is at the drive."""

import functools
import sys

import click

from blkreel.replay.telemetry.meters import named_rail
from blkreel.replay.telemetry.options import TelemetryOptions, parse_sample_hz
from blkreel.replay.telemetry.power_log import parse_power_log
from blkreel.traces.device import SYS
from blkreel.traces.errors import UsageError

_OPTIONS = (
    click.option("--power-command", metavar="COMMAND",
                 help="A program that prints lines of `seconds watts`, run in a shell while the replay goes on."),
    click.option("--power-log", metavar="FILE[,offset=SECONDS][,columns=TIME:WATTS]",
                 help="A CSV that another machine's meter writes, read when the run has ended. Its times are since "
                      "1970 or since the run's start; the offset is added to them. Also columns=TIME:VOLTS*AMPERES."),
    click.option("--power-sensor", metavar="CHIP-LABEL",
                 help="The hwmon or powercap rail that feeds the drive, as `blkreel doctor` names it."),
    click.option("--sample", default="2Hz", show_default=True, metavar="RATE",
                 help="How often power, link and foreign I/O are sampled, 1 to 50 Hz. The drive itself is asked for "
                      "its temperature once a second at most."),
)


def telemetry_options(command):
    """Adds the options; the command gets them as one argument `telemetry`, a TelemetryOptions."""
    @functools.wraps(command)
    def with_telemetry(*arguments, power_command, power_log, power_sensor, sample, **others):
        log = parse_power_log(power_log) if power_log else None
        telemetry = TelemetryOptions(sample_hz=parse_sample_hz(sample), power_command=power_command, power_log=log,
                                     power_sensor=power_sensor)
        if power_sensor and (missing := named_rail(power_sensor, SYS).missing):
            raise UsageError(missing[0].reason, "name one of these, or another meter")
        if log is not None and not log.path.exists():
            print(f"blkreel: warning: {log.path} is not there yet; it is read when the run has ended", file=sys.stderr)
        return command(*arguments, telemetry=telemetry, **others)

    for option in reversed(_OPTIONS):
        with_telemetry = option(with_telemetry)
    return with_telemetry
