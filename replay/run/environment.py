"""The machine and the software versions of a run."""

import os
import platform
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from blkreel import __version__
from blkreel.common.device import whole_disk
from blkreel.common.system import mount_of, text_in
from blkreel.replay.drive.external_io import stack_of
from blkreel.replay.drive.target import Target
from blkreel.replay.telemetry.sensors.sysfs import link_of


def environment(target: Target) -> dict[str, Any]:
    """Settings of the machine and the target that affect the times of a run; None where the kernel gives none."""
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


def uses_page_cache(target: Target) -> bool:
    """Whether I/O to the target goes through the page cache of this machine.

    A loop device without direct I/O, also below a volume, reads and writes its image through the page cache. That does
    not matter for an image in memory, which has no drive behind it.
    """
    disks = map(whole_disk, stack_of(target.disk_block)) if target.disk_block else ()
    return any(text_in(disk / "loop/dio") == "0" and not _in_memory(text_in(disk / "loop/backing_file"))
               for disk in disks)


def _in_memory(path: str) -> bool:
    with suppress(OSError):
        mount = mount_of(Path(path))
        return mount is not None and mount.kind in ("tmpfs", "ramfs", "devtmpfs")
    return False


def governor(sys_root: Path = Path("/sys")) -> str | None:
    """`performance`; `performance, powersave` if CPUs differ; None without frequency scaling."""
    names = {text_in(path) for path in (sys_root / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return ", ".join(sorted(names - {""})) or None


def cpu_model() -> str | None:
    for line in text_in(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return None
