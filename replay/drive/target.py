"""The target of a replay: a whole drive, a partition, a regular file, the nil target or a simulated drive."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blkreel.common.device import SYS, Drive, drive_of, status_of, whole_disk
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.system import integer_in, text_in
from blkreel.common.units import parse_size_bytes
from blkreel.replay.simulated import spec
from blkreel.replay.simulated.spec import SimulatedDrive

_SECTOR_BYTES = 512  # sysfs counts in these whatever the drive's block size
_NIL = "nil:"


@dataclass(frozen=True)
class Identity:
    """Identity of a file or drive, independent of its name.

    device, inode: of a regular file; a new file may get the inode of a removed one. node: the number of a block device.
    diskseq: the kernel's sequence number of the attachment, since Linux 5.15; else 0. All 0: neither of them.
    """

    device: int = 0
    inode: int = 0
    node: int = 0
    diskseq: int = 0

    @classmethod
    def of(cls, status: os.stat_result, sys_root: Path = SYS) -> "Identity":
        if stat.S_ISREG(status.st_mode):
            return cls(device=status.st_dev, inode=status.st_ino)
        if not stat.S_ISBLK(status.st_mode):
            return cls()
        number = status.st_rdev
        block = (sys_root / "dev/block" / f"{os.major(number)}:{os.minor(number)}").resolve()
        return cls(node=number, diskseq=integer_in(whole_disk(block) / "diskseq"))

    @classmethod
    def named(cls, path: Path | str) -> "Identity":
        """The identity that the name refers to now; all 0 if it does not exist."""
        try:
            return cls.of(Path(path).stat())
        except OSError:
            return cls()

    def __str__(self) -> str:
        if not self.node:
            return f"the file of inode {self.inode}" if self.inode else "neither a block device nor a regular file"
        attached = f", diskseq {self.diskseq}" if self.diskseq else ""
        return f"the drive {os.major(self.node)}:{os.minor(self.node)}{attached}"


@dataclass(frozen=True)
class Target:
    """path: the real node or file, links resolved. drive: the whole drive that it is on.

    partition: name of the partition, "" for a whole drive. block: its sysfs directory, None for a file. simulated: the
    model of a simulated drive. identity: of the device or file that the checks inspect.
    """

    path: Path
    drive: Drive
    size_bytes: int
    block_bytes: int
    partition: str = ""
    block: Path | None = None
    simulated: SimulatedDrive | None = None
    identity: Identity = Identity()

    @property
    def disk_block(self) -> Path | None:
        """The sysfs directory of the whole drive."""
        return self.block.parent if self.partition and self.block else self.block

    @property
    def is_nil(self) -> bool:
        """Whether there is no drive: I/Os complete at once, or at the time of a model."""
        return self.drive.kind == "nil"

    @property
    def is_simulated(self) -> bool:
        """Whether a model determines when I/Os complete. Such a target is nil too."""
        return self.simulated is not None

    @property
    def can_erase(self) -> bool:
        """Whether the drive supports discard, or has zones to reset. In a file its file system punches holes."""
        if self.disk_block is None or self.drive.zoned:
            return True
        return integer_in(self.disk_block / "queue/discard_max_bytes") > 0

    @property
    def can_poll(self) -> bool:
        """Whether the drive has queues whose completions can be polled."""
        return self.disk_block is not None and text_in(self.disk_block / "queue/io_poll") == "1"

    def require_polling(self) -> None:
        """Raises BlkreelError if completions cannot be polled."""
        if not self.can_poll:
            raise BlkreelError(f"{self.path} cannot be polled for completions",
                               "configure polled queues of its driver (kernel command line nvme.poll_queues=1), "
                               "or omit --polled")

    def require_commands(self) -> None:
        """Raises UsageError unless the target is a whole NVMe namespace with a character device."""
        if self.partition:
            raise UsageError(f"{self.path} is a partition, and commands address the whole namespace",
                             f"name the namespace: {self.drive.path}")
        name = self.block.name if self.block else ""
        if self.block is None or not self.block.with_name(f"ng{name.removeprefix('nvme')}").is_dir():
            raise UsageError(f"{self.path} takes no NVMe commands: it is no NVMe namespace with a character device",
                             "name an NVMe drive on Linux 5.19 or later, or omit --passthrough")
        if self.drive is not None and self.drive.zoned:
            raise UsageError(f"{self.path} has zones, which --passthrough does not manage", "omit --passthrough")


def namespace_of(path: str | os.PathLike[str], sys_root: Path = SYS) -> str:
    """/dev/nvme0n1 of /dev/ng0n1, the character device of an NVMe namespace; any other path as it is."""
    try:
        status = Path(path).stat()
    except OSError:
        return str(path)
    if not stat.S_ISCHR(status.st_mode):
        return str(path)
    device = (sys_root / f"dev/char/{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}").resolve()
    namespace = device.with_name(f"nvme{device.name.removeprefix('ng')}")
    return f"/dev/{namespace.name}" if (namespace / "size").exists() else str(path)


def find_target(path: str | os.PathLike[str], sys_root: Path = SYS) -> Target:
    """The target of that name: `nil:SIZE` without a drive, `nil:SIZE,key=value` or `nil:FILE.toml` simulated.

    Raises UsageError if it does not exist, has a wrong kind, or no size.
    """
    if str(path).startswith(_NIL):
        return _nil_target(str(path))
    status = status_of(path)
    # Before the description, so that anything attached in between has another identity.
    identity = Identity.of(status, sys_root)
    drive = drive_of(path, sys_root, status)
    real = Path(os.path.realpath(path))
    if drive.kind == "file":
        size_bytes = drive.size_bytes // drive.logical_block_bytes * drive.logical_block_bytes
        if not size_bytes:
            raise UsageError(f"{path} is an empty file", f"give it the size of a drive: truncate -s 8GiB {path}")
        return Target(real, drive, size_bytes, drive.logical_block_bytes, identity=identity)
    number = status.st_rdev
    block = (sys_root / "dev/block" / f"{os.major(number)}:{os.minor(number)}").resolve()
    partition = block.name if (block / "partition").exists() else ""
    size_bytes = int((block / "size").read_text()) * _SECTOR_BYTES
    if not size_bytes:
        raise UsageError(f"{path} has no size, because nothing is attached to it", f"losetup {path} IMAGE" if
                         drive.kind == "loop" else "list drives with: blkreel drives")
    return Target(real, drive, size_bytes, drive.logical_block_bytes, partition, block, identity=identity)


def engine_options(targets: Sequence[Target]) -> dict[str, Any]:
    """Keyword arguments of EngineOptions for the nil targets of a run. Raises UsageError for drives mixed with nil."""
    nil = [target for target in targets if target.is_nil]
    if not nil:
        return {}
    if len(nil) < len(targets):
        raise UsageError(f"{nil[0].path} cannot be mixed with drives",
                         "give every device a drive, or every device a nil target")
    options: dict[str, Any] = {"nil_bytes": max(target.size_bytes for target in nil), "nil_targets": len(nil)}
    simulated = tuple(target.simulated for target in nil if target.simulated is not None)
    if not simulated:
        return options
    if len(simulated) < len(nil) or len({drive.clock for drive in simulated}) > 1:
        raise UsageError("all simulated drives of a run need the same clock",
                         "give each the same: --on 0=nil:64GiB,clock=virtual --on 1=nil:8GiB,clock=virtual")
    return options | {"simulated": simulated}


def _nil_target(name: str) -> Target:
    if "," in name or name.endswith(".toml") or spec.is_typical(name):
        return _simulated_target(spec.parse(name))
    size_bytes = parse_size_bytes(name.removeprefix(_NIL)) // _SECTOR_BYTES * _SECTOR_BYTES
    if not size_bytes:
        raise UsageError(f"{name}: no size", "give one: nil:1TiB")
    drive = Drive(name=name, path=name, kind="nil", major=0, minor=0, size_bytes=size_bytes,
                  logical_block_bytes=_SECTOR_BYTES, physical_block_bytes=4096, model="no drive")
    return Target(Path(name), drive, size_bytes, _SECTOR_BYTES)


def _simulated_target(simulated: SimulatedDrive) -> Target:
    drive = Drive(name=simulated.spec, path=simulated.spec, kind="nil", major=0, minor=0,
                  size_bytes=simulated.size_bytes, logical_block_bytes=_SECTOR_BYTES, physical_block_bytes=4096,
                  model=simulated.model)
    return Target(Path(simulated.spec), drive, simulated.size_bytes, _SECTOR_BYTES, simulated=simulated)
