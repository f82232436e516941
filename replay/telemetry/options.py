"""Options for measurements beside a run."""

import re
from dataclasses import dataclass, replace
from typing import NotRequired, TypedDict

from blkreel.common.errors import UsageError
from blkreel.replay.telemetry.power.log import PowerLog, parse_power_log

LEAST_HZ, MOST_HZ = 1.0, 50.0


class OptionsAccount(TypedDict):
    """TelemetryOptions in test.json; power_log as the option --power-log."""

    sample_hz: float
    power_command: str | None
    power_log: str | None
    power_sensor: str | None
    ocp_log: NotRequired[bool]  # not in test.json of earlier versions


@dataclass(frozen=True)
class TelemetryOptions:
    """sample_hz: of all sensors except those that query the drive itself, which are read once per second at most.

    power_sensor: CHIP-LABEL of hwmon, or a rail of powercap. ocp_log: query the OCP logs of an NVMe drive even if
    it does not list them.
    Raises UsageError for more than one of power_command, power_log and power_sensor: the drive has one meter.
    """

    sample_hz: float = 2.0
    power_command: str | None = None
    power_log: PowerLog | None = None
    power_sensor: str | None = None
    ocp_log: bool = False

    def __post_init__(self) -> None:
        meters = [name for name, value in (("--power-command", self.power_command), ("--power-log", self.power_log),
                                           ("--power-sensor", self.power_sensor)) if value]
        if len(meters) > 1:
            raise UsageError(f"more than one power meter: {' and '.join(meters)}", "give one of them")

    @property
    def has_meter(self) -> bool:
        return bool(self.power_command or self.power_log or self.power_sensor)

    def for_several_runs(self) -> "TelemetryOptions":
        """The same for each run of a test. Raises UsageError for a log whose times do not identify the run."""
        return replace(self, power_log=self.power_log and self.power_log.for_several_runs())

    def account(self) -> OptionsAccount:
        return {"sample_hz": self.sample_hz, "power_command": self.power_command,
                "power_log": self.power_log.option_text() if self.power_log else None,
                "power_sensor": self.power_sensor, "ocp_log": self.ocp_log}

    def resumed_from(self, account: OptionsAccount | None) -> "TelemetryOptions":
        """The options of a test that is resumed: a meter that is given now replaces the one it was started with."""
        if not account:
            return self
        ocp_log = self.ocp_log or account.get("ocp_log", False)
        if self.has_meter:
            return replace(self, ocp_log=ocp_log)
        log = parse_power_log(account["power_log"]).for_several_runs() if account["power_log"] else None
        sample_hz = self.sample_hz if self.sample_hz != TelemetryOptions.sample_hz else account["sample_hz"]
        return replace(self, sample_hz=sample_hz, power_command=account["power_command"], power_log=log,
                       power_sensor=account["power_sensor"], ocp_log=ocp_log)


def parse_sample_hz(text: str) -> float:
    """`2`, `2Hz`, `10 Hz`. Raises UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(hz)?\s*", text, re.IGNORECASE)
    if not match or not LEAST_HZ <= float(match[1]) <= MOST_HZ:
        raise UsageError(f"invalid --sample: {text!r}", f"give a rate of {LEAST_HZ:g} to {MOST_HZ:g} Hz, such as 2Hz")
    return float(match[1])
