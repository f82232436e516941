"""I/O on the target that is not ours, by the kernel's own count."""

from dataclasses import dataclass
from pathlib import Path

from .target import Target

_SECTOR_BYTES = 512
# Fields of /sys/class/block/X/stat, in the kernel's order.
_READ_IOS, _READ_SECTORS, _WRITE_IOS, _WRITE_SECTORS = 0, 2, 4, 6


@dataclass(frozen=True)
class DiskCount:
    """What the kernel counted on a drive up to now."""

    read_ios: int
    read_bytes: int
    write_ios: int
    write_bytes: int


def count_of(target: Target) -> DiskCount | None:
    """Of the whole drive: its other partitions are in the way too. None for a file, which nobody counts."""
    if target.disk_block is None:
        return None
    return read_count(target.disk_block / "stat")


def read_count(path: Path) -> DiskCount | None:
    try:
        fields = [int(word) for word in path.read_text().split()]
        return DiskCount(fields[_READ_IOS], fields[_READ_SECTORS] * _SECTOR_BYTES,
                         fields[_WRITE_IOS], fields[_WRITE_SECTORS] * _SECTOR_BYTES)
    except (OSError, ValueError, IndexError):
        return None


def foreign_ios(before: DiskCount | None, after: DiskCount | None, *, read_ios: int, read_bytes: int,
                write_ios: int, write_bytes: int) -> int | None:
    """How many I/Os were not ours; None where nobody counted.

    Whether there were any is told by bytes: the kernel splits and merges I/Os, but not bytes. Their number is
    then what the counts leave over, and at least one each way. Discards and flushes are left out: the kernel
    trims the former to the drive's granularity and adds flushes of its own.
    """
    if before is None or after is None:
        return None
    foreign = 0
    for bytes_there, bytes_ours, ios_there, ios_ours in (
            (after.read_bytes - before.read_bytes, read_bytes, after.read_ios - before.read_ios, read_ios),
            (after.write_bytes - before.write_bytes, write_bytes, after.write_ios - before.write_ios, write_ios)):
        if bytes_there > bytes_ours:
            foreign += max(1, ios_there - ios_ours)
    return foreign
