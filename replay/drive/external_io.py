"""External I/O on a target: the kernel's count minus the workload's I/Os."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from blkreel.common.device import SYS, dm_targets, multipath_paths
from blkreel.common.system import integer_in, text_in
from blkreel.traces.format.metadata_types import ArrayUse

from .target import Target

_SECTOR_BYTES = 512
# Fields of /sys/class/block/X/stat, in the kernel's order.
_READ_IOS, _READ_SECTORS, _WRITE_IOS, _WRITE_SECTORS, _DISCARD_SECTORS = 0, 2, 4, 6, 13


@dataclass(frozen=True)
class DiskCount:
    """The kernel's counts of a drive since it was attached. discard_bytes: 0 before Linux 4.18. target_ios: reads and
    writes of the target alone, in a count of what is around it."""

    read_ios: int
    read_bytes: int
    write_ios: int
    write_bytes: int
    discard_bytes: int = 0
    target_ios: int | None = None


def count_of(target: Target) -> DiskCount | None:
    """Of the whole drive, because I/O on its other partitions interferes too. None for a file."""
    return None if target.disk_block is None else count_of_disk(target.disk_block)


def count_around(target: Target, own: Iterable[Target]) -> DiskCount | None:
    """As count_of(), of a volume with that of the volumes and partitions which share a drive with it. own: the targets
    of the run, which are left out."""
    if target.disk_block is None:
        return None
    blocks = beside(target.disk_block, [of_run.disk_block for of_run in own if of_run.disk_block])
    alone = count_of_disk(target.disk_block)
    around = _sum([alone, *(read_count(block / "stat") for block in blocks)])
    return alone and around and replace(around, target_ios=alone.read_ios + alone.write_ios)


def beside(disk: Path, own: Sequence[Path] = ()) -> list[Path]:
    """The volumes and partitions on the drives below a volume (dm, md) that are not below it themselves, as directories
    in sysfs; none of a drive, whose own counters have all. own: other volumes of the run, which are left out."""
    others: set[Path] = set()
    for block in stack_of(disk)[1:]:
        others |= {holder.resolve() for holder in (block / "holders").glob("*")}
        if (block / "partition").exists():
            others |= {entry.parent for entry in block.parent.glob("*/partition")}
    return sorted(others.difference(*map(stack_of, [disk, *own])))


def arrays_at_work(target: Target) -> list[ArrayUse]:
    """Arrays (md, dm-raid) of which the target has a part, or which share a drive with it, that lack drives or copy
    between them.

    The kernel counts these copies on the drives only, among the I/Os of the array itself.
    """
    if target.disk_block is None:
        return []
    return [use for block in [*stack_of(target.disk_block), *beside(target.disk_block)]
            if (use := array_use(block))["action"] or use["missing_drives"]]


def array_use(block: Path) -> ArrayUse:
    """action, missing_drives: "" and 0 of any other drive, and of an array without redundancy."""
    action, missing = text_in(block / "md/sync_action"), integer_in(block / "md/degraded")
    for _, _, kind, state in (dm_targets(text_in(block / "dev"), state=True) or []) if (block / "dm").is_dir() else ():
        if kind == "raid":  # of LVM: `raid1 2 AA 131072/131072 idle 0 0 -`, D for each drive that failed
            words = state.split()
            action, missing = words[4] if len(words) > 4 else "", words[2].count("D") if len(words) > 2 else 0
    return {"name": block.name, "action": "" if action in ("idle", "frozen") else action, "missing_drives": missing}


def stack_of(disk: Path) -> list[Path]:
    """A volume and what is below it."""
    stack = [disk]
    for block in stack:
        stack += [lower for slave in (block / "slaves").glob("*") if (lower := slave.resolve()) not in stack]
    return stack


def count_of_disk(disk: Path, block_root: Path = SYS / "class/block") -> DiskCount | None:
    """disk: its directory in sysfs. Of an NVMe multipath head the sum of its paths."""
    return _sum([read_count(path / "stat") for path in multipath_paths(disk, block_root) or [disk]])


def _sum(counts: list[DiskCount | None]) -> DiskCount | None:
    """Of all but target_ios. None if any of them is unknown."""
    readable = [count for count in counts if count is not None]
    if len(readable) < len(counts):
        return None
    return DiskCount(*(sum(getattr(count, field.name) for count in readable) for field in fields(DiskCount)[:-1]))


def read_count(path: Path) -> DiskCount | None:
    try:
        fields = [int(word) for word in path.read_text().split()]
        return DiskCount(fields[_READ_IOS], fields[_READ_SECTORS] * _SECTOR_BYTES,
                         fields[_WRITE_IOS], fields[_WRITE_SECTORS] * _SECTOR_BYTES,
                         sum(fields[_DISCARD_SECTORS:_DISCARD_SECTORS + 1]) * _SECTOR_BYTES)
    except (OSError, ValueError, IndexError):
        return None


def foreign_ios(before: DiskCount | None, after: DiskCount | None, *, read_ios: int, read_bytes: int,
                write_ios: int, write_bytes: int) -> int | None:
    """Number of external I/Os; None without a count, or if iostats are switched off. The arguments are those of the
    workload.

    Bytes decide whether there were any, because the kernel splits and merges I/Os. Their number is then the difference
    of the I/O counts, and at least one per direction. Discards and flushes do not count: the kernel trims the former
    to the drive's granularity and adds flushes of its own.
    """
    if before is None or after is None:
        return None
    if before.target_ios is not None and before.target_ios == after.target_ios and read_bytes + write_bytes:
        return None
    external = 0
    for kernel_bytes, workload_bytes, kernel_ios, workload_ios in (
            (after.read_bytes - before.read_bytes, read_bytes, after.read_ios - before.read_ios, read_ios),
            (after.write_bytes - before.write_bytes, write_bytes, after.write_ios - before.write_ios, write_ios)):
        if kernel_bytes > workload_bytes:
            external += max(1, kernel_ios - workload_ios)
    return external


def counts_commands(target: Target) -> bool:
    """Whether the kernel's counts include commands that a program passes to the drive; it can since Linux 6.13."""
    return target.disk_block is not None and text_in(target.disk_block / "queue/iostats_passthrough") == "1"


def sum_or_none(counts: Iterable[int | None]) -> int | None:
    """None if any of them is unknown."""
    values = list(counts)
    return None if None in values else sum(count for count in values if count is not None)
