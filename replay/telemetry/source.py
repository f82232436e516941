"""What a source of samples is: some sensors that are read together, and a reason for each that is not there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Sensor:
    """name: as in telemetry.parquet. source: where its values come from. rail: what a power meter is at."""

    name: str
    unit: str
    source: str
    rail: str | None = None


class Source(Protocol):
    """Sensors that are read together.

    read() gives their values by name, all or some of them; a first reading may have none. Raises OSError or
    ValueError, whose words go into the notes of all its sensors.
    """

    sensors: list[Sensor]

    def read(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Missing:
    """A sensor that there is not: why, and the command that mends it."""

    name: str
    unit: str
    reason: str


@dataclass
class Found:
    """What was looked for: the sources there are, the sensors there are not."""

    sources: list[Source] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def add(self, other: "Found") -> None:
        self.sources += other.sources
        self.missing += other.missing


class FileSensors:
    """Numbers in files of sysfs: each sensor has its file, and what one unit there is worth."""

    def __init__(self, files: Mapping[Sensor, tuple[Path, float]]):
        self.sensors = list(files)
        self._files = dict(files)

    def read(self):
        return {sensor.name: number_in(path) * scale for sensor, (path, scale) in self._files.items()}


def number_in(path: Path) -> float:
    """The first word of a file as a number. Raises OSError, or ValueError where it is none."""
    text = path.read_text()
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        raise ValueError(f"{path} holds {text.strip()[:40]!r} and no number") from None


def text_in(path: Path) -> str:
    """The text of a file; "" where there is none."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def slug(text: str) -> str:
    """`Sensor 1` is sensor-1: a name that needs no quotes anywhere."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
