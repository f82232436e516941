"""Which drives a capture watches: from devices, a directory, or the place where a command starts."""

from pathlib import Path

from blkreel.traces.device import Drive, block_directory, drive_of, drives_under, underlying_disks
from blkreel.traces.errors import UsageError

MAX_DRIVES = 16  # records.h, MAX_DEVICES


def drives_to_watch(devices: list[str], path: str | None, notice) -> list[Drive]:
    """The whole drives behind devices (partitions and volumes resolved), or those under a directory.

    notice: takes a line for the user where the drive is not the one that was named. Raises UsageError or
    BlkreelError where a drive does not exist.
    """
    found: dict[str, Drive] = {}
    for device in devices:
        for drive in _drives_behind(device, notice):
            found[drive.name] = drive
    if path is not None:
        for drive in drives_under(path):
            found[drive.name] = drive
        notice(f"{path} is on {', '.join(drive.path for drive in found.values())}")
    if len(found) > MAX_DRIVES:
        raise UsageError(f"{len(found)} drives are more than the {MAX_DRIVES} of one capture",
                         "capture some of them, or run two captures")
    return list(found.values())


def _drives_behind(device, notice):
    try:
        drive = drive_of(device)
    except UsageError as error:
        if "/" not in device:
            raise UsageError(f"no such device: {device}",
                             "name a device like /dev/nvme0n1, and put a command behind --, as in: "
                             "blkreel capture -o t.parquet -- COMMAND") from error
        raise
    if drive.kind == "file":
        raise UsageError(f"{device} is a file, not a device", f"watch the drive below it with: --path {device}")
    below = underlying_disks(block_directory(drive))
    drives = [drive_of(f"/dev/{disk.name.replace('!', '/')}") for disk in below]
    names = ", ".join(one.path for one in drives)
    if names != str(Path(device).resolve()):
        notice(f"{device} is on {names}: the whole drive is recorded")
    return drives


def layer_of(drive: Drive) -> str:
    """What a trace of this drive records: "request", or "bio" where its driver makes none, as that of zram."""
    return "request" if (block_directory(drive) / "mq").is_dir() else "bio"
