"""The drives of the demo: loop devices over images in memory and on disk, in a Workspace."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from blkreel.common.errors import BlkreelError
from blkreel.common.units import format_bytes
from blkreel.replay.emulated.host import available_memory_bytes

from .workspace import Workspace

SPARE_BYTES = 256 << 20
_IN_MEMORY = ("tmpfs", "ramfs")
# The kernel's default for drives. A loop device over some file systems has 2560, and a program would read in other
# pieces there than on the emulated drive.
_READ_AHEAD_KB = "128"


@dataclass(frozen=True)
class LoopDrive:
    """direct: I/O to the image bypasses the page cache of its file system."""

    device: Path
    image: Path
    direct: bool


def check_room(workspace: Workspace, disk_bytes: int, memory_bytes: int) -> None:
    """Raise BlkreelError if the images would not fit."""
    if _file_system_type(workspace.path) in _IN_MEMORY:
        raise BlkreelError(f"{workspace.path} is in memory, not on a disk", "add --work DIR, on a disk")
    if not has_room(workspace.path, disk_bytes):
        raise BlkreelError(f"{workspace.path}: {format_bytes(shutil.disk_usage(workspace.path).free)} free, "
                           f"{format_bytes(disk_bytes + SPARE_BYTES)} required for disk images", "add --work DIR")
    available_bytes = available_memory_bytes()
    if available_bytes < memory_bytes + SPARE_BYTES:
        raise BlkreelError(f"{format_bytes(available_bytes)} of memory free, "
                           f"{format_bytes(memory_bytes + SPARE_BYTES)} required for the image in memory",
                           "stop other programs")


def has_room(directory: Path, disk_bytes: int) -> bool:
    """Whether images of that size fit on the file system of a directory."""
    return shutil.disk_usage(directory).free >= disk_bytes + SPARE_BYTES


def mount_memory(workspace: Workspace, size_bytes: int) -> Path:
    """Mount a tmpfs of this size; /dev/shm may be smaller, and other programs use it."""
    directory = workspace.path / "memory"
    directory.mkdir()
    workspace.run("mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "blkreel-demo", directory)
    return directory


def make_drive(workspace: Workspace, image: Path, size_bytes: int, allocate: bool = False) -> LoopDrive:
    """Create a loop drive over a new image.

    allocate: allocate the blocks now, so that a full disk cannot become an I/O error of the drive. Otherwise the image
    is sparse; preconditioning discards the whole drive and so frees the blocks in any case.
    """
    with image.open("xb") as file:
        if allocate:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        else:
            file.truncate(size_bytes)
    attach = ("losetup", "--find", "--show", image)
    # Direct I/O, since the page cache would answer reads of the drive. tmpfs supports it from Linux 6.6 on.
    try:
        output = workspace.run(*attach, "--direct-io=on")
    except BlkreelError:
        output = workspace.run(*attach)
    device = Path(output.strip())
    settings = Path("/sys/block") / device.name
    (settings / "queue/read_ahead_kb").write_text(_READ_AHEAD_KB)
    direct = (settings / "loop/dio").read_text().strip() == "1"
    return LoopDrive(device, image, direct)


def make_file_system(workspace: Workspace, drive: LoopDrive) -> Path:
    """Create and mount ext4, with all initialization done now, so that a capture does not record it later."""
    now = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
    workspace.run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", now, drive.device)
    directory = workspace.path / "source"
    directory.mkdir()
    workspace.run("mount", "-t", "ext4", drive.device, directory)
    return directory


def remount(workspace: Workspace, drive: LoopDrive, directory: Path) -> None:
    """Write back and drop all cached data and the journal, so that a capture records only later I/O."""
    workspace.run("umount", directory)
    workspace.run("mount", "-t", "ext4", drive.device, directory)


def _file_system_type(directory: Path) -> str:
    result = subprocess.run(["findmnt", "--noheadings", "--output", "FSTYPE", "--target", directory],
                            stdout=subprocess.PIPE, text=True)
    return result.stdout.strip()
