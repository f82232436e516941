"""What is to be measured beside a run."""

import re
from dataclasses import dataclass, replace

from blkreel.traces.errors import UsageError

from .power_log import PowerLog, parse_power_log

LEAST_HZ, MOST_HZ = 1.0, 50.0


@dataclass(frozen=True)
class TelemetryOptions:
    """sample_hz: readings a second. What a question costs the drive itself is asked once a second at most.

    smart_every_s: of NVMe drives, while a run goes on; 0 for never. Of power_command, power_log and power_sensor
    (CHIP-LABEL of hwmon, or a rail of powercap) at most one: the meter at the drive.
    """

    sample_hz: float = 2.0
    smart_every_s: float = 30.0
    power_command: str | None = None
    power_log: PowerLog | None = None
    power_sensor: str | None = None

    def __post_init__(self):
        named = [name for name, value in (("--power-command", self.power_command), ("--power-log", self.power_log),
                                          ("--power-sensor", self.power_sensor)) if value]
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)} are several meters at one drive", "name one of them")

    @property
    def has_meter(self) -> bool:
        return bool(self.power_command or self.power_log or self.power_sensor)

    def for_several_runs(self) -> "TelemetryOptions":
        """The same for each run of a test. Raises UsageError for a log of which the runs could not be told apart."""
        return replace(self, power_log=self.power_log and self.power_log.for_several_runs())

    def account(self) -> dict:
        """As test.json keeps them."""
        return {"sample_hz": self.sample_hz, "power_command": self.power_command,
                "power_log": self.power_log and self.power_log.told(), "power_sensor": self.power_sensor}

    def or_as_begun(self, account: dict | None) -> "TelemetryOptions":
        """Those of a test that goes on: a meter that is named now, else the one that it was begun with."""
        if self.has_meter or not account:
            return self
        log = parse_power_log(account["power_log"]).for_several_runs() if account["power_log"] else None
        sample_hz = self.sample_hz if self.sample_hz != TelemetryOptions.sample_hz else account["sample_hz"]
        return replace(self, sample_hz=sample_hz, power_command=account["power_command"], power_log=log,
                       power_sensor=account["power_sensor"])


def parse_sample_hz(text: str) -> float:
    """`2`, `2Hz`, `10 Hz`. Raises UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(hz)?\s*", text, re.IGNORECASE)
    if not match or not LEAST_HZ <= float(match[1]) <= MOST_HZ:
        raise UsageError(f"--sample {text!r} is no rate of {LEAST_HZ:g} to {MOST_HZ:g} Hz", "write it like 2Hz")
    return float(match[1])
