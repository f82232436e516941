"""SMART of a drive, by nvme-cli or smartctl."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from blkreel.common.device import Drive
from blkreel.common.system import find_program
from blkreel.replay.telemetry.source import MissingSensor, Sensor

from .smart_formats import (
    OCP_LATENCY_LOG,
    OCP_SMART_LOG,
    TRANSITIONS,
    UNITS,
    from_nvme_cli,
    from_ocp,
    from_smartctl,
    listed_logs,
    lists_logs,
)

T = TypeVar("T")

_TIMEOUT_S = 10.0
PACKAGES = {"nvme": "nvme-cli", "smartctl": "smartmontools"}


@dataclass
class Smart:
    """program: `nvme` or `smartctl`. values, longest_ns: of the last query; the duration of the longest one.

    reads_media: whether queries read the OCP log of media writes, too; see find_ocp_logs().
    """

    drive: Drive
    program: str
    path: str
    suffix: str = ""
    longest_ns: int = 0
    reads_media: bool = False

    def __post_init__(self) -> None:
        self.values: dict[str, float] = {}
        self._has_latency_log = False

    @property
    def is_live(self) -> bool:
        """Whether a query does not disturb the drive's I/O. An ATA drive empties its queue for it."""
        return self.drive.name.startswith("nvme")

    @property
    def source(self) -> str:
        return "nvme smart-log" if self.program == "nvme" else "smartctl"

    def query(self) -> dict[str, float]:
        """Fields as in smart_formats.UNITS. Raises ValueError with the program's message, or OSError."""
        begin_ns = time.monotonic_ns()
        if self.program == "nvme":
            values = self._parsed(["smart-log", "-o", "json"], from_nvme_cli)
        else:
            values = self._parsed(["-j", "-a", "-n", "standby"], from_smartctl)
        if self.reads_media:
            values |= self._parsed(["ocp", "smart-add-log", "-o", "json"], from_ocp)
        self.longest_ns = max(self.longest_ns, time.monotonic_ns() - begin_ns)
        self.values = values
        return values

    def find_ocp_logs(self, asked: bool) -> str:
        """Find out whether the drive has the OCP logs of media writes and of latencies.

        asked: query them even if the drive does not list them. Returns why there is no count of media writes, or "".
        """
        if self.program != "nvme":
            return "smartctl does not read the OCP log: apt-get install nvme-cli"
        try:
            listed = (self._parsed(["supported-log-pages", "-o", "json"], listed_logs)
                      if self._parsed(["id-ctrl", "-o", "json"], lists_logs) else set())
            self._has_latency_log = asked or OCP_LATENCY_LOG in listed
            if not asked and OCP_SMART_LOG not in listed:
                return "the drive does not list the OCP log (C0h); --ocp-log queries it all the same"
            self._parsed(["ocp", "smart-add-log", "-o", "json"], from_ocp)
        except (OSError, ValueError) as error:
            return str(error)
        self.reads_media = True
        return ""

    def latency_log(self) -> dict[str, Any] | None:
        """The OCP latency monitor log as nvme-cli prints it; None of a drive without one. Raises as query()."""
        if not self._has_latency_log:
            return None
        return self._parsed(["ocp", "latency-monitor-log", "-o", "json"], dict)

    def _parsed(self, options: list[str], parse: Callable[[dict[str, Any]], T]) -> T:
        try:
            result = subprocess.run([self.path, *options, self.drive.path], capture_output=True, timeout=_TIMEOUT_S,
                                    stdin=subprocess.DEVNULL, start_new_session=True)
        except subprocess.TimeoutExpired:
            raise ValueError(f"{self.program} did not answer within {_TIMEOUT_S:.0f} s") from None
        sudo = "" if os.geteuid() == 0 else ": run it with sudo"
        try:
            document = json.loads(result.stdout)
            if not isinstance(document, dict):
                raise ValueError("not an object")
        except ValueError:
            output = (result.stderr or result.stdout).decode(errors="replace").strip()
            reason = output.splitlines()[0][:200] if output else f"it exited with {result.returncode}"
            raise ValueError(f"{self.program} printed no JSON: {reason}{sudo}") from None
        try:
            return parse(document)
        except (ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{self.program}: {error}{sudo}") from None

    @property
    def sensors(self) -> list[Sensor]:
        return [Sensor(name, UNITS[field], self.source)
                for field, name in zip(self.values, self.by_sensor(self.values), strict=True)]

    def by_sensor(self, fields: Mapping[str, float]) -> dict[str, float]:
        return {f"smart{self.suffix}.{field}": value for field, value in fields.items()}


def smart(drive: Drive, suffix: str = "") -> Smart | list[MissingSensor]:
    """SMART by the program for this drive, or why there is none. Nothing is queried yet."""
    programs = ["nvme", "smartctl"] if drive.name.startswith("nvme") else ["smartctl"]
    if drive.kind != "disk" or not drive.name.startswith(("nvme", "sd")):
        return missing(suffix, f"{drive.name} is not an NVMe, SATA or SAS drive, and has no SMART")
    for program in programs:
        path = find_program(program)
        if path:
            return Smart(drive, program, path, suffix)
    return missing(suffix, f"{programs[0]} is not installed: apt-get install {PACKAGES[programs[0]]}")


def thermal_transitions(fields: Mapping[str, float]) -> float | None:
    """Number of thermal throttling events in the drive's lifetime; None if it does not report them."""
    counts = [fields[name] for name in TRANSITIONS if name in fields]
    return sum(counts) if counts else None


def missing(suffix: str, reason: str) -> list[MissingSensor]:
    return [MissingSensor(f"smart{suffix}", "", reason), MissingSensor(f"throttle_events{suffix}", "count", reason)]
