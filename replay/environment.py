"""The machine and the parts of ours that a run was made with."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

from blkreel import __version__

from .target import Target
from .telemetry.ancestry import ancestors


def environment(target: Target) -> dict:
    return {
        "blkreel": __version__,
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in ("numpy", "pyarrow")},
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu_model": cpu_model(),
        "cpu_count": os.cpu_count(),
        "governor": governor(),
        "load_average": round(os.getloadavg()[0], 2),
        "scheduler": target.drive.scheduler or None,
        "nr_requests": target.drive.queue_depth or None,
        "write_cache": target.drive.write_cache or None,
        "link": link_of(target.disk_block) if target.disk_block else None,
    }


def link_of(disk: Path) -> dict | None:
    """PCIe speed and width of an NVMe drive's link, and the most that drive and slot both support."""
    if not disk.name.startswith("nvme"):
        return None
    device = next((up for up in ancestors(disk) if (up / "current_link_speed").exists()), None)
    if device is None:
        return None
    slot = device.parent
    speeds = [_number(where / "max_link_speed") for where in (device, slot)]
    widths = [_number(where / "max_link_width") for where in (device, slot)]
    return {"speed_gts": _number(device / "current_link_speed"), "width": _number(device / "current_link_width"),
            "best_speed_gts": min((s for s in speeds if s), default=None),
            "best_width": min((w for w in widths if w), default=None)}


def uses_page_cache(target: Target) -> bool:
    """Whether I/O to the target ends in this machine's page cache instead of at the drive.

    A loop device without direct I/O reads and writes its image through the cache; where the image lies in
    memory anyway there is no drive behind it that the cache could hide.
    """
    if target.drive.kind != "loop" or target.disk_block is None:
        return False
    return _text(target.disk_block / "loop/dio") == "0" and not _in_memory(target.drive.backing_file)


def _in_memory(path) -> bool:
    try:
        number = Path(path).stat().st_dev
    except OSError:
        return False
    for line in _text(Path("/proc/self/mountinfo")).splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == f"{os.major(number)}:{os.minor(number)}":
            return rest.split()[0] in ("tmpfs", "ramfs", "devtmpfs")
    return False


def governor(sys_root: Path = Path("/sys")) -> str | None:
    """`performance`; `performance, powersave` where processors differ; None where nothing governs their frequency."""
    found = {_text(path) for path in (sys_root / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return ", ".join(sorted(found - {""})) or None


def cpu_model() -> str | None:
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return None


def _text(path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path) -> float | None:
    """`8.0 GT/s PCIe` is 8.0."""
    try:
        return float(_text(path).split()[0])
    except (IndexError, ValueError):
        return None
