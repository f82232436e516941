"""What a replay goes to: a whole drive, a partition, a regular file that stands in for a drive, or nothing at all."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from blkreel.traces.device import SYS, Drive, drive_of
from blkreel.traces.errors import BlkreelError, UsageError
from blkreel.traces.units import parse_size_bytes

from . import simulated_spec
from .simulated_spec import SimulatedDrive

_SECTOR_BYTES = 512  # sysfs counts in these whatever the drive's block size
_NIL = "nil:"


@dataclass(frozen=True)
class Target:
    """path: the real node or file, links resolved. drive: the whole drive it lies on.

    partition: the name of the partition, "" for a whole drive. block: its sysfs directory, None for a file.
    simulated: what a drive that is not there is calculated from.
    """

    path: Path
    drive: Drive
    size_bytes: int
    block_bytes: int
    partition: str = ""
    block: Path | None = None
    simulated: SimulatedDrive | None = None

    @property
    def disk_block(self) -> Path | None:
        """The sysfs directory of the whole drive."""
        return self.block.parent if self.partition else self.block

    @property
    def is_nil(self) -> bool:
        """Whether there is no drive: I/Os complete at once, or when a model says so."""
        return self.drive.kind == "nil"

    @property
    def is_simulated(self) -> bool:
        """Whether a model says when I/Os complete. Such a target is nil too."""
        return self.simulated is not None

    @property
    def can_discard(self) -> bool:
        """Whether the drive unmaps blocks when asked; a file is punched by its file system."""
        if self.disk_block is None:
            return True
        try:
            return int((self.disk_block / "queue/discard_max_bytes").read_text()) > 0
        except (OSError, ValueError):
            return False

    @property
    def can_poll(self) -> bool:
        """Whether completions can be looked for at the drive, on queues that its driver made for that."""
        try:
            return self.disk_block is not None and (self.disk_block / "queue/io_poll").read_text().strip() == "1"
        except OSError:
            return False

    def require_polling(self) -> None:
        """Raises BlkreelError where completions can't be polled."""
        if not self.can_poll:
            raise BlkreelError(f"{self.path} cannot be polled for completions",
                               "give its driver queues for that (nvme.poll_queues=1 on the kernel's command line), or "
                               "leave --polled out")


def find_target(path, sys_root: Path = SYS) -> Target:
    """The target of that name; `nil:SIZE` is none, of that size, and `nil:SIZE,key=value` or `nil:FILE.toml` simulated.

    Raises UsageError where it does not exist, is of a wrong kind, or has no size.
    """
    if str(path).startswith(_NIL):
        return _nil_target(str(path))
    drive = drive_of(path, sys_root)
    real = Path(os.path.realpath(path))
    if drive.kind == "file":
        size_bytes = drive.size_bytes // drive.logical_block_bytes * drive.logical_block_bytes
        if not size_bytes:
            raise UsageError(f"{path} is an empty file", f"give it the size of a drive: truncate -s 8GiB {path}")
        return Target(real, drive, size_bytes, drive.logical_block_bytes)
    number = real.stat().st_rdev
    block = (sys_root / "dev/block" / f"{os.major(number)}:{os.minor(number)}").resolve()
    partition = block.name if (block / "partition").exists() else ""
    size_bytes = int((block / "size").read_text()) * _SECTOR_BYTES
    if not size_bytes:
        raise UsageError(f"{path} has no size: nothing is attached to it", f"losetup {path} IMAGE" if
                         drive.kind == "loop" else "list drives with: blkreel drives")
    return Target(real, drive, size_bytes, drive.logical_block_bytes, partition, block)


def engine_options(targets: Sequence[Target]) -> dict:
    """What EngineOptions are to be told of the targets of a run. Raises UsageError where only some are drives."""
    nil = [target for target in targets if target.is_nil]
    if not nil:
        return {"target": targets[0].path if len(targets) == 1 else tuple(target.path for target in targets)}
    if len(nil) < len(targets):
        raise UsageError(f"{nil[0].path} is no drive and goes with none", "give all devices a drive, or none")
    options = {"null_bytes": max(target.size_bytes for target in nil), "null_targets": len(nil)}
    simulated = tuple(target.simulated for target in nil if target.is_simulated)
    if not simulated:
        return options
    if len(simulated) < len(nil) or len({drive.clock for drive in simulated}) > 1:
        raise UsageError("drives that are simulated go with such on the same clock only",
                         "give each the same: --on 0=nil:64GiB,clock=virtual --on 1=nil:8GiB,clock=virtual")
    return options | {"simulated": simulated}


def _nil_target(name) -> Target:
    if "," in name or name.endswith(".toml"):
        return _simulated_target(simulated_spec.parse(name))
    size_bytes = parse_size_bytes(name.removeprefix(_NIL)) // _SECTOR_BYTES * _SECTOR_BYTES
    if not size_bytes:
        raise UsageError(f"{name} has no size", "give it one: nil:1TiB")
    drive = Drive(name=name, path=name, kind="nil", major=0, minor=0, size_bytes=size_bytes,
                  logical_block_bytes=_SECTOR_BYTES, physical_block_bytes=4096, model="no drive")
    return Target(Path(name), drive, size_bytes, _SECTOR_BYTES)


def _simulated_target(simulated) -> Target:
    drive = Drive(name=simulated.spec, path=simulated.spec, kind="nil", major=0, minor=0,
                  size_bytes=simulated.size_bytes, logical_block_bytes=_SECTOR_BYTES, physical_block_bytes=4096,
                  model=simulated_spec.MODEL)
    return Target(Path(simulated.spec), drive, simulated.size_bytes, _SECTOR_BYTES, simulated=simulated)


def is_block_device(path) -> bool:
    try:
        return stat.S_ISBLK(Path(path).stat().st_mode)
    except OSError:
        return False
