"""SMART of a drive, by nvme-cli or smartctl: before a run, after it, and of NVMe drives now and then meanwhile."""

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass

from blkreel.traces.device import Drive

from .smart_formats import TRANSITIONS, UNITS, from_nvme_cli, from_smartctl
from .source import Found, Missing, Sensor

_TIMEOUT_S = 10.0
_SEARCHED = ("/usr/sbin", "/sbin")
PACKAGES = {"nvme": "nvme-cli", "smartctl": "smartmontools"}


@dataclass(frozen=True)
class Program:
    """A program that tells SMART as JSON. live: asking does not disturb the drive's own work."""

    name: str
    path: str
    live: bool

    def command(self, drive: str) -> list[str]:
        if self.name == "nvme":
            return [self.path, "smart-log", "-o", "json", drive]
        return [self.path, "-j", "-a", "-n", "standby", drive]

    def parse(self, document) -> dict[str, float]:
        return from_nvme_cli(document) if self.name == "nvme" else from_smartctl(document)


class Smart:
    """longest_ns: the longest that asking has taken. values: as of the last time."""

    def __init__(self, drive: str, program: Program, suffix: str = ""):
        self._drive, self._program, self._suffix = drive, program, suffix
        self.longest_ns = 0
        self.values: dict[str, float] = {}
        self.sensors: list[Sensor] = []

    @property
    def live(self) -> bool:
        """An ATA drive empties its queue for such a question: it is asked before and after a run only."""
        return self._program.live

    @property
    def source(self) -> str:
        return "nvme smart-log" if self._program.name == "nvme" else "smartctl"

    def ask(self) -> dict[str, float]:
        """Fields as in smart_formats.UNITS. Raises ValueError with what the program said, or OSError."""
        begin_ns = time.monotonic_ns()
        try:
            result = subprocess.run(self._program.command(self._drive), capture_output=True, timeout=_TIMEOUT_S,
                                    stdin=subprocess.DEVNULL, start_new_session=True)
        except subprocess.TimeoutExpired:
            raise ValueError(f"{self._program.name} has not answered for {_TIMEOUT_S:.0f} s") from None
        self.longest_ns = max(self.longest_ns, time.monotonic_ns() - begin_ns)
        try:
            document = json.loads(result.stdout)
            if not isinstance(document, dict):
                raise ValueError("no object")
        except ValueError:
            said = (result.stderr or result.stdout).decode(errors="replace").strip()
            reason = said.splitlines()[0][:200] if said else f"it ended with {result.returncode}"
            raise ValueError(f"{self._program.name} gave no JSON: {reason}{_who()}") from None
        try:
            self.values = self._program.parse(document)
        except (ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{self._program.name}: {error}{_who()}") from None
        self.sensors = [Sensor(f"smart{self._suffix}.{field}", UNITS[field], self.source) for field in self.values]
        return self.values

    def read(self):
        return self.named(self.ask())

    def named(self, values) -> dict[str, float]:
        return {f"smart{self._suffix}.{field}": value for field, value in values.items()}


def smart(drive: Drive, suffix: str = "") -> tuple[Smart | None, Found]:
    """Of the program that fits the drive. Nothing is asked yet."""
    names = ["nvme", "smartctl"] if drive.name.startswith("nvme") else ["smartctl"]
    if drive.kind != "disk" or not drive.name.startswith(("nvme", "sd")):
        return None, Found(missing=missing(suffix, f"{drive.name} is no NVMe, SATA or SAS drive, and has no SMART"))
    for name in names:
        path = find_program(name)
        if path:
            return Smart(drive.path, Program(name, path, drive.name.startswith("nvme")), suffix), Found()
    return None, Found(missing=missing(suffix, f"{names[0]} is not installed; apt-get install {PACKAGES[names[0]]}"))


def find_program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_SEARCHED]))


def thermal_transitions(values) -> float | None:
    """How often the drive had throttled itself up to then; None where it does not tell."""
    counts = [values[name] for name in TRANSITIONS if name in values]
    return sum(counts) if counts else None


def missing(suffix: str, reason: str) -> list[Missing]:
    """What is not known where nobody can be asked."""
    return [Missing(f"smart{suffix}", "", reason), Missing(f"throttle_events{suffix}", "count", reason)]


def _who():
    return "" if os.geteuid() == 0 else "; run it with sudo"
