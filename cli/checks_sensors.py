"""Which sensors of temperature and power there are: what a run's telemetry will hold, or lack."""

from pathlib import Path

from blkreel.cli.check_result import Check
from blkreel.replay.telemetry import hwmon, powercap
from blkreel.replay.telemetry.smart import PACKAGES, find_program
from blkreel.traces.device import list_drives


def sensors(sys_root: Path = Path("/sys")) -> list[Check]:
    """One line for the drives' temperatures, one for power. Nothing here is needed for a run."""
    return [_temperatures(sys_root), _power(sys_root)]


def _temperatures(sys_root):
    known, unknown, remedies = [], [], []
    for drive in list_drives(sys_root):
        if not drive.name.startswith(("nvme", "sd")):
            continue
        found = hwmon.temperatures((sys_root / "class/block" / drive.name).resolve(), sys_root)
        (known if found.sources else unknown).append(drive.name)
        for program in ("nvme" if drive.name.startswith("nvme") else "smartctl",):
            if not find_program(program):
                remedies.append(f"apt-get install {PACKAGES[program]}")
    if any(name.startswith("sd") for name in unknown):
        remedies.append("modprobe drivetemp")
    detail = f"of {', '.join(known)}" if known else "of no drive"
    if unknown:
        detail += f"; not of {', '.join(unknown)}"
    if remedies:
        detail += "" if unknown else "; without SMART"
    status = "ok" if known and not remedies and not unknown else "note"
    return Check("replay", "temperature", status, detail, "; ".join(dict.fromkeys(remedies)))


def _power(sys_root):
    chips, processor = hwmon.power_chips(sys_root), powercap.rails(sys_root)
    rails = [*chips, *(source.sensors[0].name.removeprefix("power_w.") for source in processor.sources)]
    if not rails:
        return Check("replay", "power", "note", "no sensor here", "--power-command or --power-log at a replay")
    return Check("replay", "power", "note", f"{', '.join(rails)}; none is known to be a drive's",
                 "--power-sensor where one is, else --power-command or --power-log")
