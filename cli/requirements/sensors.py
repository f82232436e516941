"""Sensors of temperature and power, which a run records as telemetry."""

from pathlib import Path

from blkreel.common.device import list_drives
from blkreel.common.system import find_program
from blkreel.replay.telemetry.power.rails import processor_rails
from blkreel.replay.telemetry.sensors import hwmon
from blkreel.replay.telemetry.sensors.smart import PACKAGES

from . import Check


def sensors(sys_root: Path = Path("/sys")) -> list[Check]:
    """One check for temperatures of the drives, one for power. No sensor is required."""
    return [_temperatures(sys_root), _power(sys_root)]


def _temperatures(sys_root: Path) -> Check:
    with_sensor: list[str] = []
    without_sensor: list[str] = []
    remedies = []
    for drive in list_drives(sys_root):
        if not drive.name.startswith(("nvme", "sd")):
            continue
        temperatures = hwmon.temperatures((sys_root / "class/block" / drive.name).resolve(), sys_root)
        (with_sensor if temperatures.sources else without_sensor).append(drive.name)
        program = "nvme" if drive.name.startswith("nvme") else "smartctl"
        if not find_program(program):
            remedies.append(f"apt-get install {PACKAGES[program]}")
    if any(name.startswith("sd") for name in without_sensor):
        remedies.append("modprobe drivetemp")
    detail = f"of {', '.join(with_sensor)}" if with_sensor else "of no drive"
    if without_sensor:
        detail += f"; not of {', '.join(without_sensor)}"
    if remedies:
        detail += "" if without_sensor else "; without SMART"
    is_complete = with_sensor and not remedies and not without_sensor
    return Check("replay", "temperature", "ok" if is_complete else "note", detail, "; ".join(dict.fromkeys(remedies)))


def _power(sys_root: Path) -> Check:
    chips, processor = hwmon.power_rails(sys_root), processor_rails(sys_root)
    rails = [*chips, *(source.sensors[0].name.removeprefix("power_w.") for source in processor.sources)]
    if not rails:
        return Check("replay", "power", "note", "no sensor", "use --power-command or --power-log")
    return Check("replay", "power", "note", f"{', '.join(rails)}; may not measure a drive",
                 "use --power-sensor for the rail of the drive, or --power-command or --power-log")
