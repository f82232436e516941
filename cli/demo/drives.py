"""The demo's drives: loop devices over images in memory and on disk, below a Place, which gives them back."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from blkreel.traces.errors import BlkreelError
from blkreel.traces.units import format_bytes

from .place import Place

_SPARE_BYTES = 256 << 20
_IN_MEMORY = ("tmpfs", "ramfs")


@dataclass(frozen=True)
class LoopDrive:
    """direct: the image is read and written past the page cache of the file system it lies on."""

    device: Path
    image: Path
    direct: bool


def check_room(place: Place, disk_bytes: int, memory_bytes: int) -> None:
    """Raise BlkreelError, before anything is made, where the images would not fit."""
    if _file_system_type(place.path) in _IN_MEMORY:
        raise BlkreelError(f"{place.path} is in memory, and a disk image is wanted", "add --work DIR, on a disk")
    free_bytes = shutil.disk_usage(place.path).free
    if free_bytes < disk_bytes + _SPARE_BYTES:
        raise BlkreelError(f"{place.path} has {format_bytes(free_bytes)} free, and the disk images take "
                           f"{format_bytes(disk_bytes + _SPARE_BYTES)}", "add --work DIR, or --quick for smaller ones")
    available_bytes = _available_memory_bytes()
    if available_bytes < memory_bytes + _SPARE_BYTES:
        raise BlkreelError(f"{format_bytes(available_bytes)} of memory are free, and the image in memory takes "
                           f"{format_bytes(memory_bytes + _SPARE_BYTES)}", "end something, or add --quick")


def mount_memory(place: Place, size_bytes: int) -> Path:
    """A file system in memory of the demo's own: /dev/shm may be smaller, and is everybody's."""
    directory = place.path / "memory"
    directory.mkdir()
    place.run("mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "blkreel-demo", directory)
    return directory


def make_drive(place: Place, image: Path, size_bytes: int, allocate: bool = False) -> LoopDrive:
    """A loop drive over a new image.

    allocate: take the blocks now, so that a disk filling up meanwhile can't become an I/O error of the drive.
    Without, it is sparse: preconditioning discards the whole drive, which gives the blocks back in any case.
    """
    with image.open("xb") as file:
        if allocate:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        else:
            file.truncate(size_bytes)
    attach = ("losetup", "--find", "--show", image)
    # Without direct I/O the page cache below the drive would answer reads that the drive should answer.
    # tmpfs takes it from Linux 6.6 on; before, an image there is in memory either way.
    try:
        device = place.run(*attach, "--direct-io=on")
    except BlkreelError:
        device = place.run(*attach)
    device = Path(device.strip())
    direct = (Path("/sys/block") / device.name / "loop/dio").read_text().strip() == "1"
    return LoopDrive(device, image, direct)


def make_file_system(place: Place, drive: LoopDrive) -> Path:
    """ext4 on the drive, mounted. Whatever mkfs can do at once is done now and not traced as I/O later."""
    now = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
    place.run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", now, drive.device)
    directory = place.path / "source"
    directory.mkdir()
    place.run("mount", "-t", "ext4", drive.device, directory)
    return directory


def remount(place: Place, drive: LoopDrive, directory: Path) -> None:
    """Write everything out and forget it, the journal too, so that a capture sees only what comes after."""
    place.run("umount", directory)
    place.run("mount", "-t", "ext4", drive.device, directory)


def _file_system_type(directory):
    result = subprocess.run(["findmnt", "--noheadings", "--output", "FSTYPE", "--target", directory],
                            stdout=subprocess.PIPE, text=True)
    return result.stdout.strip()


def _available_memory_bytes():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
