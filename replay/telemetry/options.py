"""What is to be measured beside a run."""

import re
from dataclasses import dataclass

from blkreel.traces.errors import UsageError

from .power_log import PowerLog

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


def parse_sample_hz(text: str) -> float:
    """`2`, `2Hz`, `10 Hz`. Raises UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(hz)?\s*", text, re.IGNORECASE)
    if not match or not LEAST_HZ <= float(match[1]) <= MOST_HZ:
        raise UsageError(f"--sample {text!r} is no rate of {LEAST_HZ:g} to {MOST_HZ:g} Hz", "write it like 2Hz")
    return float(match[1])
