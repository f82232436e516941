"""Temperatures and power as the kernel's hwmon drivers give them (Documentation/hwmon/sysfs-interface.rst)."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .ancestry import ancestors
from .source import FileSensors, Found, Missing, Sensor, Source, number_in, slug, text_in

_DRIVE_CHIPS = ("nvme", "drivetemp")
_MILLI, _MICRO = 1e-3, 1e-6


def chips_of(disk: Path, sys_root: Path) -> list[Path]:
    """The hwmon directories that belong to a drive: those whose device is above it in sysfs, whatever their name."""
    above = set(ancestors(disk))
    return [chip for chip in _chips(sys_root) if (chip / "device").exists() and (chip / "device").resolve() in above]


def temperatures(disk: Path, sys_root: Path, suffix: str = "") -> Found:
    """Every temperature of a drive: `temperature_c` is its composite, `temperature_c.LABEL` what else it has.

    suffix: stands behind `temperature_c`, for a run of several drives.
    """
    base = f"temperature_c{suffix}"
    chips = [chip for chip in chips_of(disk, sys_root) if text_in(chip / "name") in _DRIVE_CHIPS]
    for chip in chips:
        files = {}
        source = f"hwmon {text_in(chip / 'name')}"
        for path in _inputs(chip, "temp", "input"):
            number = _number_of(path)
            label = text_in(chip / f"temp{number}_label") or f"temp{number}"
            name = base if not files else f"{base}.{slug(label)}"
            if any(sensor.name == name for sensor in files):
                name = f"{name}-{number}"
            files[Sensor(name, "C", source)] = (path, _MILLI)
        if files:
            return Found([FileSensors(files)])
    return Found(missing=[Missing(base, "C", _why_no_temperature(disk, sys_root))])


def _why_no_temperature(disk, sys_root):
    if disk.name.startswith("nvme"):
        return ("the kernel has no hwmon for this NVMe drive; take one with CONFIG_NVME_HWMON, or apt-get install "
                "nvme-cli for its SMART temperature")
    if disk.name.startswith("sd"):
        if (sys_root / "module/drivetemp").exists():
            return ("drivetemp is loaded, but this drive or its bridge tells it nothing; apt-get install smartmontools "
                    "for its SMART temperature")
        return "nobody reads this drive's temperature; modprobe drivetemp"
    return f"{disk.name} is no NVMe, SATA or SAS drive, and only those have a sensor"


@dataclass(frozen=True)
class PowerRail:
    """A rail that a chip measures. make(sensor) gives the source that reads it under that name."""

    chip: Path
    sensor: Sensor
    make: Callable[[Sensor], Source]


def power_chips(sys_root: Path) -> dict[str, PowerRail]:
    """Every power rail that a hwmon chip of this machine measures, by CHIP-LABEL. Nothing is read yet.

    Whose rail it is, the kernel does not know. power1_input is in microwatts; of a chip that has only volts and
    amperes it is their product.
    """
    found = {}
    for chip in _chips(sys_root):
        name = text_in(chip / "name") or chip.name
        for label, make in _rails(chip):
            key = slug(f"{name}-{label}")
            if key in found:
                key = slug(f"{name}-{chip.name}-{label}")
            found[key] = PowerRail(chip, Sensor(f"power_w.{key}", "W", f"hwmon {name}", label), make)
    return found


def _rails(chip) -> Iterator[tuple[str, Callable]]:
    measured = set()
    for path in [*_inputs(chip, "power", "input"), *_inputs(chip, "power", "average")]:
        number = _number_of(path)
        if number not in measured:
            measured.add(number)
            label = text_in(chip / f"power{number}_label") or f"power{number}"
            yield label, lambda sensor, path=path: FileSensors({sensor: (path, _MICRO)})
    if measured:
        return
    for path in _inputs(chip, "curr", "input"):
        number = _number_of(path)
        volts = chip / f"in{number}_input"
        if volts.exists():
            label = text_in(chip / f"curr{number}_label") or f"curr{number}"
            yield label, lambda sensor, path=path, volts=volts: _Product(sensor, path, volts)


class _Product:
    """Milliamperes times millivolts."""

    def __init__(self, sensor, amperes, volts):
        self.sensors = [sensor]
        self._amperes, self._volts = amperes, volts

    def read(self):
        return {self.sensors[0].name: number_in(self._amperes) * _MILLI * number_in(self._volts) * _MILLI}


def _chips(sys_root):
    return sorted((sys_root / "class/hwmon").glob("hwmon*"), key=lambda chip: (len(chip.name), chip.name))


def _inputs(chip, kind, what):
    return sorted(chip.glob(f"{kind}[0-9]*_{what}"), key=_number_of)


def _number_of(path) -> int:
    return int(re.search(r"\d+", path.name)[0])
