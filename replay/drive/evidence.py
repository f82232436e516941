"""Whether a drive is the same, with the same contents, as when its state was remembered.

A serial, of a volume its UUID, identifies a drive permanently. A drive without one is identified only while it stays
attached, an image by path, inode, birth time and size. Changed contents show in the kernel's counts of the drive, or in
the image's modification time and allocated size.
"""

from contextlib import suppress
from pathlib import Path
from typing import NotRequired, TypedDict

from blkreel.common.device import multipath_paths
from blkreel.common.system import text_in

from .file_identity import identity_of, status_of
from .target import Target
from .usage import Kernel, backing_of

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Fields of /sys/class/block/X/stat that only grow: reads, writes, discards, flushes. Times wrap around.
_GROWING = (0, 1, 2, 4, 5, 6, 11, 12, 13, 15)
# Sectors written and discarded, as places in _GROWING.
_CHANGED = (5, 8)


class Evidence(TypedDict):
    """power: see power_of(). counts: None of a file. modified_ns, allocated_bytes: of an image; the first is None while
    blkreel writes to it."""

    power: str
    counts: list[int] | None
    modified_ns: NotRequired[int | None]
    allocated_bytes: NotRequired[int]


def identity_words(target: Target) -> str:
    """Words that identify a drive or an image; another one, or the same one created again, has other words."""
    drive = target.drive
    if drive.serial_hash:
        # Namespaces of one NVMe controller have its serial in common.
        namespace = _sysfs_text(target, "nsid")
        words = drive.serial_hash + (f":{namespace}" if namespace not in ("", "1") else "")
    elif image := _image(target):
        offset = _sysfs_text(target, "loop/offset")
        try:
            # The number of the file system's device changes with each mount.
            status = status_of(image)
            inode = status.identity[2] if status.identity else 0
            words = f"{image}:{inode}:{status.born_ns}:{drive.size_bytes}:{offset or 0}"
        except OSError:
            words = f"{image}:{drive.size_bytes}"
    else:
        words = f"{drive.name}:{drive.model}:{drive.size_bytes}:{power_of(target)}"
    return f"{words}:{target.partition}"


def evidence_of(target: Target, *, is_written: bool) -> Evidence:
    """Evidence of its contents, to be compared later. is_written: blkreel is about to change them."""
    evidence: Evidence = {"power": power_of(target), "counts": _counts(target)}
    if image := _image(target):
        with suppress(OSError):
            status = status_of(image)
            evidence["modified_ns"] = None if is_written else status.modified_ns
            evidence["allocated_bytes"] = status.allocated_bytes
    return evidence


def lost_by(target: Target, then: Evidence, *, discards: bool) -> str | None:
    """What happened to the contents since the evidence `then`; None if they seem unchanged.

    discards: whether blkreel may have discarded blocks since.
    """
    now = evidence_of(target, is_written=False)
    counts = list(zip(then["counts"] or [], now["counts"] or [], strict=False)) if then["power"] == now["power"] else []
    if any(after < before for before, after in counts):
        return "the drive was reset since"
    if not ("modified_ns" in then and "allocated_bytes" in then and "modified_ns" in now and "allocated_bytes" in now):
        return None
    shrunk = now["allocated_bytes"] < then["allocated_bytes"]
    if then["modified_ns"] is None:  # a run that was killed: it wrote until nobody knows when
        return "its image lost blocks since" if shrunk and not discards else None
    # Writes through the loop device are counted: see written_by_others().
    by_loop = any(after > before for before, after in (counts[index] for index in _CHANGED if index < len(counts)))
    if then["modified_ns"] == now["modified_ns"] or (by_loop and not shrunk):
        return None
    return "another program changed its image since"


def power_of(target: Target) -> str:
    """Stays the same while the machine runs and the drive stays attached."""
    # The latter came with Linux 5.15.
    parts = [text_in(BOOT_ID), _sysfs_text(target, "diskseq")]
    return ":".join(part for part in parts if part)


def _image(target: Target) -> Path | None:
    """The file that holds the contents; None for a drive, and for a loop device whose file has no path here."""
    if target.block is None:
        return target.path
    backing, path = backing_of(target, Kernel()), target.drive.backing_file
    if backing and backing[0] == "file" and path and identity_of(path) == backing:
        return Path(path)
    return None


def _counts(target: Target) -> list[int] | None:
    if target.disk_block is None:
        return None
    disks = [text_in(disk / "stat").split() for disk in multipath_paths(target.disk_block) or [target.disk_block]]
    return [sum(int(fields[index]) for fields in disks if index < len(fields))
            for index in _GROWING if any(index < len(fields) for fields in disks)]


def _sysfs_text(target: Target, name: str) -> str:
    return text_in(target.disk_block / name) if target.disk_block else ""
