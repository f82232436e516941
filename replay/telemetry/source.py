"""Sources of samples: sensors that are read together, and the reason for each sensor that is missing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Sensor:
    """name: as in telemetry.parquet. source: where its values come from. rail: the rail that a power meter measures."""

    name: str
    unit: str
    source: str
    rail: str | None = None


class Source(Protocol):
    """Sensors that are read together.

    read() returns all or some of their values by name; a first reading may return none. Raises OSError or ValueError,
    whose text goes into the notes of all its sensors.
    """

    sensors: list[Sensor]

    def read(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class MissingSensor:
    """reason: why there is no such sensor, and the command that fixes it."""

    name: str
    unit: str
    reason: str


@dataclass
class SensorSet:
    sources: list[Source] = field(default_factory=list)
    missing: list[MissingSensor] = field(default_factory=list)

    def add(self, sensor_set: "SensorSet") -> None:
        self.sources += sensor_set.sources
        self.missing += sensor_set.missing
