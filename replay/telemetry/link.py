"""The PCIe link of an NVMe drive while a run goes on: drives and slots take speed and lanes back when they get hot."""

from pathlib import Path

from ..environment import link_of
from .source import Found, Missing, Sensor

_WHY = "no PCIe link of its own is known"


class Link:
    def __init__(self, disk: Path, suffix: str = ""):
        self._disk = disk
        self._speed, self._width = f"link_speed_gts{suffix}", f"link_width{suffix}"
        self.sensors = [Sensor(self._speed, "GT/s", "sysfs"), Sensor(self._width, "lanes", "sysfs")]

    def read(self):
        link = link_of(self._disk)
        if link is None:
            raise ValueError("the drive's PCIe device is gone")
        found = {self._speed: link["speed_gts"], self._width: link["width"]}
        return {name: value for name, value in found.items() if value is not None}


def link(disk: Path, suffix: str = "") -> Found:
    if link_of(disk) is None:
        return Found(missing=[Missing(f"link_speed_gts{suffix}", "GT/s", f"{disk.name}: {_WHY}"),
                              Missing(f"link_width{suffix}", "lanes", f"{disk.name}: {_WHY}")])
    return Found([Link(disk, suffix)])
