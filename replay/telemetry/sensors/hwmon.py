"""Temperatures and power rails of the kernel's hwmon drivers (Documentation/hwmon/sysfs-interface.rst)."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from blkreel.common.system import text_in
from blkreel.replay.telemetry.source import MissingSensor, Sensor, SensorSet

from .sysfs import FileSensors, ancestors, number_in, slug

_DRIVE_CHIPS = ("nvme", "drivetemp")
_MILLI, _MICRO = 1e-3, 1e-6


def chips_of(disk: Path, sys_root: Path) -> list[Path]:
    """The hwmon directories of a drive: those whose device is the drive or a parent of it in sysfs."""
    above = set(ancestors(disk))
    return [chip for chip in _chips(sys_root) if (chip / "device").exists() and (chip / "device").resolve() in above]


def temperatures(disk: Path, sys_root: Path, suffix: str = "") -> SensorSet:
    """All temperatures of a drive: `temperature_c` is the composite, `temperature_c.LABEL` are the others.

    suffix: follows `temperature_c`, for a run on several drives.
    """
    base = f"temperature_c{suffix}"
    chips = [chip for chip in chips_of(disk, sys_root) if text_in(chip / "name") in _DRIVE_CHIPS]
    for chip in chips:
        files: dict[Sensor, tuple[Path, float]] = {}
        source = f"hwmon {text_in(chip / 'name')}"
        for path in _inputs(chip, "temp", "input"):
            number = _number_of(path)
            label = text_in(chip / f"temp{number}_label") or f"temp{number}"
            name = base if not files else f"{base}.{slug(label)}"
            if any(sensor.name == name for sensor in files):
                name = f"{name}-{number}"
            files[Sensor(name, "C", source)] = (path, _MILLI)
        if files:
            return SensorSet([FileSensors(files)])
    return SensorSet(missing=[MissingSensor(base, "C", _why_no_temperature(disk, sys_root))])


def _why_no_temperature(disk: Path, sys_root: Path) -> str:
    if disk.name.startswith("nvme"):
        return ("the kernel has no hwmon for this NVMe drive: boot one with CONFIG_NVME_HWMON, or apt-get install "
                "nvme-cli for its SMART temperature")
    if disk.name.startswith("sd"):
        if (sys_root / "module/drivetemp").exists():
            return ("drivetemp is loaded, but gets no temperature from this drive or its bridge: apt-get install "
                    "smartmontools for its SMART temperature")
        return "the drivetemp driver is not loaded: modprobe drivetemp"
    return f"{disk.name} is not an NVMe, SATA or SAS drive, and has no sensor"


@dataclass
class PowerRail:
    """A rail that a hwmon chip measures. files: of its power, or of its volts and amperes, each with the factor to the
    unit."""

    chip: Path
    sensors: list[Sensor]
    files: dict[Path, float]

    def renamed(self, sensor: Sensor) -> "PowerRail":
        """The same rail under another name."""
        return replace(self, sensors=[sensor])

    def read(self) -> dict[str, float]:
        return {self.sensors[0].name: math.prod(number_in(path) * factor for path, factor in self.files.items())}


def power_rails(sys_root: Path) -> dict[str, PowerRail]:
    """Each power rail that a hwmon chip of this machine measures, by CHIP-LABEL. Nothing is read yet.

    The kernel has no record of what a rail supplies. power1_input is in microwatts. The power of a chip with volts
    and amperes only is their product.
    """
    rails: dict[str, PowerRail] = {}
    for chip in _chips(sys_root):
        name = text_in(chip / "name") or chip.name
        for label, files in _rails_of_chip(chip):
            key = slug(f"{name}-{label}")
            if key in rails:
                key = slug(f"{name}-{chip.name}-{label}")
            rails[key] = PowerRail(chip, [Sensor(f"power_w.{key}", "W", f"hwmon {name}", label)], files)
    return rails


def _rails_of_chip(chip: Path) -> Iterator[tuple[str, dict[Path, float]]]:
    measured: set[int] = set()
    for path in [*_inputs(chip, "power", "input"), *_inputs(chip, "power", "average")]:
        number = _number_of(path)
        if number not in measured:
            measured.add(number)
            label = text_in(chip / f"power{number}_label") or f"power{number}"
            yield label, {path: _MICRO}
    if measured:
        return
    for path in _inputs(chip, "curr", "input"):
        number = _number_of(path)
        volts = chip / f"in{number}_input"
        if volts.exists():
            label = text_in(chip / f"curr{number}_label") or f"curr{number}"
            yield label, {path: _MILLI, volts: _MILLI}


def _chips(sys_root: Path) -> list[Path]:
    return sorted((sys_root / "class/hwmon").glob("hwmon*"), key=lambda chip: (len(chip.name), chip.name))


def _inputs(chip: Path, kind: str, what: str) -> list[Path]:
    return sorted(chip.glob(f"{kind}[0-9]*_{what}"), key=_number_of)


def _number_of(path: Path) -> int:
    match = re.search(r"\d+", path.name)
    return int(match[0]) if match else 0
