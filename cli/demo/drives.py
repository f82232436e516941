"""The drives of the demo: a loop device over an image on disk, and an emulated drive, in a Workspace."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from blkreel.common.emulated import FILE, RUN, read_account
from blkreel.common.errors import BlkreelError
from blkreel.common.system import mount_of
from blkreel.common.units import format_bytes
from blkreel.replay.emulated.file_system import unmount

from .steps import BLKREEL, end
from .workspace import Workspace

SPARE_BYTES = 256 << 20
# The kernel's default for drives. A loop device over some file systems has 2560, and a program would read in other
# pieces there than on the emulated drive.
_READ_AHEAD_KB = "128"
# Beyond its write cache, which writes of 110 MB/s fill within a minute: so each run starts from the same state.
EMULATED = "nil:sata-qlc,cache=0"
EMULATED_LABEL = "emulated SATA QLC"
_EMULATED_NAME = "demo-sata-qlc"
_START_S = 60.0
_POLL_S = 0.05


@dataclass(frozen=True)
class LoopDrive:
    """direct: I/O to the image bypasses the page cache of its file system."""

    device: Path
    image: Path
    direct: bool


@dataclass(frozen=True)
class EmulatedDrive:
    """backing_file: of its loop device. beyond: what this machine cannot reach of the description."""

    device: Path
    backing_file: Path
    beyond: list[str]


def check_room(workspace: Workspace, disk_bytes: int) -> None:
    """Raise BlkreelError if the image would not fit on a disk."""
    mount = mount_of(workspace.path)
    if mount and mount.kind in ("tmpfs", "ramfs"):
        raise BlkreelError(f"{workspace.path} is in memory, not on a disk", "add --work DIR, on a disk")
    if not has_room(workspace.path, disk_bytes):
        raise BlkreelError(f"{workspace.path}: {format_bytes(shutil.disk_usage(workspace.path).free)} free, "
                           f"{format_bytes(disk_bytes + SPARE_BYTES)} required for disk images", "add --work DIR")


def has_room(directory: Path, disk_bytes: int) -> bool:
    """Whether images of that size fit on the file system of a directory."""
    return shutil.disk_usage(directory).free >= disk_bytes + SPARE_BYTES


def make_drive(workspace: Workspace, image: Path, size_bytes: int) -> LoopDrive:
    """Create a loop drive over a new image, allocated, so that a full disk cannot become an I/O error of the drive."""
    with image.open("xb") as file:
        os.posix_fallocate(file.fileno(), 0, size_bytes)
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


def mount_again(workspace: Workspace, device: Path, directory: Path) -> None:
    """Mount a device, unmounted before if it is mounted. No data of its files is cached afterwards.

    If another mount namespace still has the file system, its cache outlives an unmount.
    """
    if os.path.ismount(directory):
        unmount(directory)
    workspace.run("mount", device, directory)
    workspace.run("sync", "--file-system", directory)
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def emulated_drive(workspace: Workspace, size_bytes: int) -> Iterator[EmulatedDrive]:
    """An emulated drive in memory during the block, by `blkreel emulate`. Its users must end before it."""
    errors = workspace.path / "emulate.log"
    with errors.open("w") as log:
        process = subprocess.Popen([*BLKREEL, "emulate", EMULATED, "--size", str(size_bytes), "--name", _EMULATED_NAME,
                                    "--accept-inexact"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=log, env=workspace.environment, start_new_session=True)
    try:
        deadline_s = time.monotonic() + _START_S
        while not (account := read_account(_EMULATED_NAME)) or account["pid"] != process.pid:
            if process.poll() is not None or time.monotonic() > deadline_s:
                lines = errors.read_text().strip().splitlines() or ["no message"]
                raise BlkreelError(f"the emulated drive does not start: {lines[-1]}",
                                   f"run: blkreel emulate {EMULATED}")
            time.sleep(_POLL_S)
        yield EmulatedDrive(Path(account["device"]), RUN / _EMULATED_NAME / FILE, account["beyond"])
    finally:
        end(process)
