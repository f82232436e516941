"""Power rails that the machine measures: which one is the drive's, and those of the processor (RAPL).

Energy counters of RAPL: Documentation/power/powercap/powercap.rst.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from blkreel.common.system import text_in
from blkreel.replay.telemetry.sensors import hwmon
from blkreel.replay.telemetry.sensors.sysfs import number_in, slug
from blkreel.replay.telemetry.source import MissingSensor, Sensor, SensorSet

NO_METER = "no power meter was given: --power-command, --power-log or --power-sensor"
_JOULES = 1e-6  # energy_uj


def rail_of_drive(disk: Path | None, sys_root: Path) -> SensorSet:
    """A power sensor in the drive itself, as `power_w`."""
    chips = set(hwmon.chips_of(disk, sys_root)) if disk else set()
    for rail in hwmon.power_rails(sys_root).values():
        if rail.chip in chips:
            return _as_power(rail)
    return SensorSet(missing=[MissingSensor("power_w", "W", NO_METER)])


def rail_named(wanted: str, sys_root: Path) -> SensorSet:
    """The rail of hwmon or powercap that --power-sensor names, as `power_w`."""
    hwmon_rails = hwmon.power_rails(sys_root)
    rapl_rails, missing = _rapl(sys_root, time.monotonic_ns)
    key = wanted.removeprefix("power_w.")
    if key in hwmon_rails:
        return _as_power(hwmon_rails[key])
    for rapl in rapl_rails:
        if rapl.sensors[0].name == f"power_w.{key}":
            return _as_power(rapl)
    for rail in missing:
        if rail.name == f"power_w.{key}":
            return SensorSet(missing=[MissingSensor("power_w", "W", rail.reason)])
    names = [*hwmon_rails, *(rapl.sensors[0].name.removeprefix("power_w.") for rapl in rapl_rails)]
    return SensorSet(missing=[MissingSensor("power_w", "W", f"no such power sensor: {wanted}; this machine has "
                                                            f"{', '.join(names) or 'none'}")])


def _as_power(rail: "hwmon.PowerRail | Rapl") -> SensorSet:
    sensor = rail.sensors[0]
    return SensorSet([rail.renamed(Sensor("power_w", "W", f"{sensor.source}, rail {sensor.rail}", sensor.rail))])


def processor_rails(sys_root: Path) -> SensorSet:
    """`power_w.package-0` and the rails in it: those of the processor or of the whole board (`psys`), of no drive."""
    rapl_rails, missing = _rapl(sys_root, time.monotonic_ns)
    return SensorSet([*rapl_rails], missing)


def _rapl(sys_root: Path, clock_ns: Callable[[], int]) -> tuple[list["Rapl"], list[MissingSensor]]:
    rails: dict[str, Rapl] = {}
    missing: dict[str, MissingSensor] = {}
    for zone in sorted((sys_root / "class/powercap").glob("*:*")):
        zone_name = text_in(zone / "name")
        if not zone_name or not (zone / "energy_uj").exists():
            continue
        parent = text_in(zone.resolve().parent / "name")
        rail = f"{parent} {zone_name}" if zone.name.count(":") > 1 and parent else zone_name
        name = f"power_w.{slug(rail)}"
        # A processor may have the same counters twice, as registers and as memory.
        if name in rails or name in missing:
            continue
        if os.access(zone / "energy_uj", os.R_OK):
            rails[name] = Rapl(Sensor(name, "W", "powercap", rail), zone, clock_ns)
        else:
            missing[name] = MissingSensor(name, "W", f"{zone / 'energy_uj'} is readable by root only: run it with sudo")
    return list(rails.values()), list(missing.values())


class Rapl:
    """Mean power since the previous reading, from an energy counter that wraps around."""

    def __init__(self, sensor: Sensor, zone: Path, clock_ns: Callable[[], int] = time.monotonic_ns):
        self.sensors = [sensor]
        self._zone, self._clock_ns = zone, clock_ns
        self._before: tuple[int, float] | None = None

    def renamed(self, sensor: Sensor) -> "Rapl":
        """The same counter under another name."""
        return Rapl(sensor, self._zone, self._clock_ns)

    def read(self) -> dict[str, float]:
        now_ns, energy = self._clock_ns(), number_in(self._zone / "energy_uj")
        before, self._before = self._before, (now_ns, energy)
        if before is None or now_ns <= before[0]:
            return {}
        used = energy - before[1]
        if used < 0:
            # At 500 W the 2^32 units of 61 uJ of the smallest counter last nine minutes: it wraps once at most.
            used += number_in(self._zone / "max_energy_range_uj")
        if used < 0:
            raise ValueError(f"{self._zone / 'energy_uj'} decreased by more than its range")
        return {self.sensors[0].name: used * _JOULES / (now_ns - before[0]) * 1e9}
