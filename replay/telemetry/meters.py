"""Which meter is at the drive: the one that was named, or one that belongs to the drive itself."""

from pathlib import Path

from . import hwmon, powercap
from .source import Found, Missing, Sensor

NO_METER = "no meter at the drive was named: --power-command, --power-log or --power-sensor"


def own_rail(disk: Path | None, sys_root: Path, suffix: str = "") -> Found:
    """A power sensor of the drive itself, as `power_w`."""
    chips = {str(chip) for chip in hwmon.chips_of(disk, sys_root)} if disk else set()
    for rail in hwmon.power_chips(sys_root).values():
        if str(rail.chip) in chips:
            return Found([_as_power(rail.make, rail.sensor, suffix)])
    return Found(missing=[Missing(f"power_w{suffix}", "W", NO_METER)])


def named_rail(wanted: str, sys_root: Path) -> Found:
    """The rail of hwmon or powercap that --power-sensor names, as `power_w`."""
    chips, processor = hwmon.power_chips(sys_root), powercap.rails(sys_root)
    key = wanted.removeprefix("power_w.")
    if key in chips:
        return Found([_as_power(chips[key].make, chips[key].sensor, "")])
    for source in processor.sources:
        if source.sensors[0].name == f"power_w.{key}":
            return Found([_as_power(source.like, source.sensors[0], "")])
    for missing in processor.missing:
        if missing.name == f"power_w.{key}":
            return Found(missing=[Missing("power_w", "W", missing.reason)])
    there = [*chips, *(source.sensors[0].name.removeprefix("power_w.") for source in processor.sources)]
    return Found(missing=[Missing("power_w", "W", f"--power-sensor {wanted} is none of this machine's: "
                                                  f"{', '.join(there) or 'it has none'}")])


def _as_power(make, sensor: Sensor, suffix):
    return make(Sensor(f"power_w{suffix}", "W", f"{sensor.source}, rail {sensor.rail}", sensor.rail))
