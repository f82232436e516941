"""Sensors that are files of sysfs: numbers, the PCIe link of an NVMe drive, thermal throttling of the processors."""

import re
from collections.abc import Mapping
from pathlib import Path

from blkreel.common.system import read_kernel_text
from blkreel.replay.telemetry.source import MissingSensor, Sensor, SensorSet
from blkreel.traces.format.metadata_types import PcieLink

from .host_counters import throttled

_CPU_NAME = "throttle_events.cpu"


def number_in(path: Path) -> float:
    """The first word of a file as a number. Raises OSError, or ValueError if it is not a number."""
    text = read_kernel_text(path)
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        raise ValueError(f"{path}: no number in {text.strip()[:40]!r}") from None


def slug(text: str) -> str:
    """`Sensor 1` becomes sensor-1, which needs no quotes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def ancestors(disk: Path) -> list[Path]:
    """The sysfs directories of a drive and of its parent devices, nearest first.

    An NVMe drive of a subsystem lies under none of its controllers; the subsystem has links to them.
    """
    disk = disk.resolve()
    paths = [disk, *disk.parents]
    for link in sorted(disk.parent.glob("nvme[0-9]*")):
        if link.is_symlink():
            controller = link.resolve()
            paths += [controller, *controller.parents]
    return list(dict.fromkeys(paths))


class FileSensors:
    """files: sensor -> the file that holds its number, and the factor to the sensor's unit."""

    def __init__(self, files: Mapping[Sensor, tuple[Path, float]]):
        self.sensors = list(files)
        self._files = dict(files)

    def read(self) -> dict[str, float]:
        return {sensor.name: number_in(path) * scale for sensor, (path, scale) in self._files.items()}


def link_of(disk: Path) -> PcieLink | None:
    """PCIe speed and width of an NVMe drive's link; None without a link."""
    if not disk.name.startswith("nvme"):
        return None
    device = next((path for path in ancestors(disk) if (path / "current_link_speed").exists()), None)
    if device is None:
        return None

    def number(path: Path) -> float | None:
        try:
            return number_in(path)  # `8.0 GT/s PCIe` is 8.0
        except (OSError, ValueError):
            return None

    speeds = [number(bridge / "max_link_speed") for bridge in (device, device.parent)]
    widths = [number(bridge / "max_link_width") for bridge in (device, device.parent)]
    return {"speed_gts": number(device / "current_link_speed"), "width": number(device / "current_link_width"),
            "best_speed_gts": min((speed for speed in speeds if speed), default=None),
            "best_width": min((width for width in widths if width), default=None)}


class Link:
    """Speed and width of an NVMe drive's PCIe link. Drives and slots reduce both when they get hot."""

    def __init__(self, disk: Path, suffix: str):
        self._disk = disk
        self._speed, self._width = f"link_speed_gts{suffix}", f"link_width{suffix}"
        self.sensors = [Sensor(self._speed, "GT/s", "sysfs"), Sensor(self._width, "lanes", "sysfs")]

    def read(self) -> dict[str, float]:
        link = link_of(self._disk)
        if link is None:
            raise ValueError("the drive's PCIe device was removed")
        values = {self._speed: link["speed_gts"], self._width: link["width"]}
        return {name: value for name, value in values.items() if value is not None}


def link(disk: Path, suffix: str = "") -> SensorSet:
    source = Link(disk, suffix)
    if link_of(disk) is None:
        return SensorSet(missing=[MissingSensor(sensor.name, sensor.unit, f"{disk.name} has no PCIe link of its own")
                                  for sensor in source.sensors])
    return SensorSet([source])


class CpuThrottling:
    """Number of thermal throttling events of all processors since the first reading."""

    def __init__(self, sys_root: Path):
        self.sensors = [Sensor(_CPU_NAME, "count", "thermal_throttle")]
        self._sys_root = sys_root
        self._first: int | None = None

    def read(self) -> dict[str, float]:
        count = throttled(self._sys_root)
        if count is None:
            raise ValueError("the processors' throttle counters were removed")
        if self._first is None:
            self._first = count
        return {_CPU_NAME: count - self._first}


def cpu_throttling(sys_root: Path) -> SensorSet:
    if throttled(sys_root) is None:
        return SensorSet(missing=[MissingSensor(
            _CPU_NAME, "count", "the processors, or the hypervisor, do not report thermal throttling")])
    return SensorSet([CpuThrottling(sys_root)])
