"""Identify the drive behind a device node, a partition or a directory, and describe it."""

import fcntl
import os
import re
import stat
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import emulated
from .errors import BlkreelError, UsageError
from .installation import keyed_hash
from .system import MOUNTINFO, Mount, integer_in, mount_of, overlay_layers, text_in
from .units import format_bytes

SYS = Path("/sys")
_SECTOR_BYTES = 512  # of sysfs, for every block size
_NAME_DRIVE = "name a directory on a drive, or one of: blkreel drives"

# Transports of NVMe whose connection may stall.
NETWORKS = ("tcp", "rdma", "fc")

# include/uapi/linux/dm-ioctl.h: struct dm_ioctl, struct dm_target_spec, DM_TABLE_STATUS, and two of its flags.
_DM_CONTROL = Path("/dev/mapper/control")
_DM_HEADER = struct.Struct("=3I3Ii3IQ128s129s7x")
_DM_TARGET = struct.Struct("=QQiI16s")
_TABLE_STATUS = 0xC138FD0C
_STATUS_TABLE, _BUFFER_FULL = 1 << 4, 1 << 8
_MAX_TABLE_BYTES = 4 << 20

DmTarget = tuple[int, int, str, str]  # first sector, sectors, type, parameters or state

StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Drive:
    """A whole drive, or a regular file used as one.

    kind: disk, loop, ram, zram, dm, md, file, or nil for no drive. queue_depth: nr_requests of its queue, the smallest
    of several paths.
    read_ahead_bytes, max_request_bytes: what the kernel reads ahead, and its largest request; 0: unknown.
    model: of a dm volume its name. serial: as reported by the drive, of a volume its UUID, or ""; a trace holds
    serial_hash instead.
    backing_file: of a loop device or an emulated drive.
    zoned: `host-managed` or `host-aware`, "" for a drive without zones; zone_bytes: size of its zones.
    transport: of NVMe: pcie, tcp, rdma, fc or loop, of different paths all of them (`rdma, tcp`); "" of other drives.
    """

    name: str
    path: str
    kind: str
    major: int
    minor: int
    size_bytes: int
    logical_block_bytes: int
    physical_block_bytes: int
    model: str = ""
    firmware: str = ""
    serial: str = ""
    scheduler: str = ""
    queue_depth: int = 0
    read_ahead_bytes: int = 0
    max_request_bytes: int = 0
    rotational: bool = False
    write_cache: str = ""
    backing_file: str = ""
    read_only: bool = False
    zoned: str = ""
    zone_bytes: int = 0
    transport: str = ""

    @property
    def is_volume(self) -> bool:
        return self.kind in ("dm", "md")

    @property
    def serial_hash(self) -> str:
        """Distinguishes units in shared results without revealing the serial; "" without a serial.

        Keyed to this machine: without the key, a list of all serials of a maker would reveal it.
        """
        return keyed_hash("serial", f"{self.model}:{self.serial}".encode())[:16] if self.serial else ""


def drive_of(path: StrPath, sys_root: Path = SYS, status: os.stat_result | None = None) -> Drive:
    """The whole drive behind a device node, a partition, a link to one, or a regular file.

    status: an earlier stat() of `path`. Raises UsageError if `path` does not exist or is none of these.
    """
    real = Path(os.path.realpath(path))
    status = status or status_of(path)
    if stat.S_ISREG(status.st_mode):
        return _file_drive(real, status)
    if not stat.S_ISBLK(status.st_mode):
        raise UsageError(f"{path}: not a block device", "list drives: blkreel drives")
    drive = _drive(whole_disk(_block_directory(status.st_rdev, sys_root, path)), sys_root)
    link = Path(path).absolute()
    # A drive that was killed leaves its link, and the kernel may give the number of its device again.
    if link.parent == emulated.LINKS and emulated.name_of(drive.backing_file) != link.name:
        raise UsageError(f"{path}: this emulated drive has ended, and {real} is another drive", f"rm {path}")
    return drive


def status_of(path: StrPath) -> os.stat_result:
    """stat(). Raises UsageError if there is no such device or file."""
    try:
        return Path(path).stat()
    except OSError as error:
        raise UsageError(f"no such device: {path} ({error.strerror})", "list drives: blkreel drives") from None


def drives_under(directory: StrPath, sys_root: Path = SYS,
                 mountinfo: Path = MOUNTINFO) -> list[Drive]:
    """The drives of the file system of a directory.

    Resolves device-mapper and md volumes, btrfs and bcachefs of several devices, and the directories of an overlay to
    their drives. Raises UsageError for a file system without a local drive (tmpfs, a network mount).
    """
    blocks = blocks_under(Path(directory), sys_root, mountinfo)
    disks = {disk.name: disk for block in blocks for disk in underlying_disks(block)}
    return [_drive(disk, sys_root) for _, disk in sorted(disks.items())]


def list_drives(sys_root: Path = SYS) -> list[Drive]:
    """All drives, sorted by name, without empty loop and ram devices, and without the paths of multipath heads."""
    refuse_without_sysfs(sys_root)
    drives = []
    for block in sorted((sys_root / "class/block").iterdir()):
        disk = block.resolve()
        is_node = not (disk / "partition").exists() and text_in(disk / "hidden") != "1"
        if is_node and integer_in(disk / "size") > 0:
            drives.append(_drive(disk, sys_root))
    return drives


def refuse_without_sysfs(sys_root: Path = SYS) -> None:
    """Raise BlkreelError in a container or chroot that does not show the drives: no list of them would be true."""
    if not (sys_root / "class/block").is_dir():
        raise BlkreelError(f"no drives can be found: {sys_root} is not mounted", f"mount -t sysfs sysfs {sys_root}")


def describe(drive: Drive) -> dict[str, Any]:
    """The drive as an entry of the metadata key `devices`, without its serial."""
    entry = asdict(drive)
    del entry["serial"]
    return {**entry, "serial_hash": drive.serial_hash}


def drive_units(drives: Iterable[Mapping[str, Any]],
                uses: Iterable[emulated.EmulatedUse | emulated.EmulatedAccount] = ()) -> list[str]:
    """What tells drives of one model apart: of each the serial, or else the image, the device or the description of a
    simulated drive; then the descriptions of the emulated ones in use."""
    units = [drive.get("serial_hash") or drive.get("backing_file") or drive.get("path") or "" for drive in drives]
    return [without_seed(unit) for unit in [*units, *(use["drive"] for use in uses)]]


def without_seed(description: str) -> str:
    """Of a simulated drive: runs that differ in its seed are repetitions."""
    return re.sub(r",seed=\d+", "", description)


def zones_words(zoned: str | None, zone_bytes: int | None) -> str:
    """`host-managed, zones of 268 MB`; "" for a drive without zones."""
    return f"{zoned}, zones of {format_bytes(zone_bytes or 0)}" if zoned else ""


def whole_disk(block: Path) -> Path:
    """The sysfs directory of the whole drive, for one of a partition or a drive."""
    return block.parent if (block / "partition").exists() else block


def underlying_disks(block: Path) -> list[Path]:
    """The sysfs directories of the drives below a dm or md volume, each once; of the drive itself otherwise."""
    disk = whole_disk(block)
    slaves = sorted((disk / "slaves").glob("*"))
    if not slaves:
        return [disk]
    return list(dict.fromkeys(lower for slave in slaves for lower in underlying_disks(slave.resolve())))


def multipath_paths(disk: Path, block_root: Path = SYS / "class/block") -> list[Path]:
    """The sysfs directories of the paths nvmeXcZnY of an NVMe multipath head nvmeXnY; none for any other drive.

    A path has the requests and the counters, and no node. The head has bios only, and its counters stay 0 before
    Linux 6.4.
    """
    head = re.fullmatch(r"(nvme\d+)(n\d+)", disk.name)
    return sorted(block_root.glob(f"{head[1]}c*{head[2]}")) if head else []


def block_directory(drive: Drive) -> Path:
    return (SYS / "class/block" / drive.name).resolve()


def _block_directory(number: int, sys_root: Path, path: StrPath) -> Path:
    block = sys_root / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
    if not block.exists():
        refuse_without_sysfs(sys_root)
        raise UsageError(f"{path}: not on a drive of this machine", "name one of: blkreel drives")
    return block.resolve()


def blocks_under(directory: Path, sys_root: Path = SYS, mountinfo: Path = MOUNTINFO) -> list[Path]:
    """The sysfs directories of the drives, partitions or volumes that the file system of a directory is on.

    Raises UsageError as drives_under().
    """
    try:
        number = directory.stat().st_dev
        block = sys_root / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
        # btrfs and overlayfs have virtual device numbers; the mount names the device.
        return [block.resolve()] if block.exists() else _blocks_of_mount(directory, sys_root, mountinfo)
    except OSError as error:
        raise UsageError(f"no such directory: {directory} ({error.strerror})") from None


def _blocks_of_mount(directory: Path, sys_root: Path, mountinfo: Path) -> list[Path]:
    mount = mount_of(directory, mountinfo)
    if mount is None:
        raise UsageError(f"{directory}: on a file system that only another mount namespace has", _NAME_DRIVE)
    if mount.kind == "overlay":
        return _blocks_of_layers(directory, mount, sys_root, mountinfo)
    # bcachefs names all its devices.
    sources = mount.source.split(":") if mount.kind == "bcachefs" else [mount.source]
    blocks = [block for source in sources if (block := _block_of_source(source, sys_root))]
    if not blocks:
        raise UsageError(f"{directory}: not on a drive of this machine (file system {mount.kind} of {mount.source})",
                         _NAME_DRIVE)
    for member in (sys_root / "fs/btrfs").glob(f"*/devices/{blocks[0].name}"):
        return [device.resolve() for device in sorted(member.parent.iterdir())]
    return blocks


def _block_of_source(source: str, sys_root: Path) -> Path | None:
    """The sysfs directory of a device that a mount names; a container may lack its node."""
    if not source.startswith("/dev/"):
        return None
    try:
        status = Path(source).stat()
        block = sys_root / "dev/block" / f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    except OSError:
        block = sys_root / "class/block" / Path(source).name
    return block.resolve() if block.exists() else None


def _blocks_of_layers(directory: Path, mount: Mount, sys_root: Path, mountinfo: Path) -> list[Path]:
    """Of the directories that an overlay consists of, as far as they are visible: a container sees none of them."""
    blocks: dict[Path, None] = {}
    for layer in overlay_layers(mount):
        with suppress(UsageError):  # in memory, on a network mount, or not visible
            blocks |= dict.fromkeys(blocks_under(layer, sys_root, mountinfo))
    if not blocks:
        raise UsageError(f"{directory}: on overlayfs, whose directories are not visible here or on no drive",
                         "name the drive of the host that has them, one of: blkreel drives")
    return list(blocks)


def _drive(disk: Path, sys_root: Path) -> Drive:
    name = disk.name.replace("!", "/")  # cciss!c0d0 is /dev/cciss/c0d0
    major, minor = (int(part) for part in text_in(disk / "dev").split(":"))
    queue = disk / "queue"
    paths = multipath_paths(disk, sys_root / "class/block") or [disk]
    backing_file = text_in(disk / "loop/backing_file") or emulated.file_of(f"/dev/{name}")
    return Drive(
        name=disk.name, path=f"/dev/{name}", kind=_kind(disk), major=major, minor=minor,
        size_bytes=integer_in(disk / "size") * _SECTOR_BYTES,
        logical_block_bytes=integer_in(queue / "logical_block_size") or _SECTOR_BYTES,
        physical_block_bytes=integer_in(queue / "physical_block_size") or _SECTOR_BYTES,
        model=text_in(disk / "device/model") or text_in(disk / "dm/name") or _emulated(backing_file),
        firmware=text_in(disk / "device/firmware_rev") or text_in(disk / "device/rev"),
        serial=_serial(disk),
        scheduler=_active_scheduler(text_in(queue / "scheduler")),
        queue_depth=min(integer_in(path / "queue/nr_requests") for path in paths),
        read_ahead_bytes=integer_in(queue / "read_ahead_kb") << 10,
        max_request_bytes=integer_in(queue / "max_sectors_kb") << 10,
        rotational=text_in(queue / "rotational") == "1",
        write_cache=text_in(queue / "write_cache"),
        backing_file=backing_file,
        read_only=text_in(disk / "ro") == "1", **_zones(queue),
        transport=", ".join(sorted({text_in(path / "device/transport") for path in paths} - {""})))


def _zones(queue: Path) -> dict[str, Any]:
    """A host-aware drive takes writes anywhere, as a drive without zones does."""
    zoned = text_in(queue / "zoned")
    if zoned in ("", "none"):
        return {}
    return {"zoned": zoned, "zone_bytes": integer_in(queue / "chunk_sectors") * _SECTOR_BYTES}


def _emulated(backing_file: str) -> str:
    name = emulated.name_of(backing_file)
    return f"{emulated.MODEL} {name}" if name else ""


def _file_drive(path: Path, status: os.stat_result) -> Drive:
    return Drive(name=path.name, path=str(path), kind="file", major=0, minor=0, size_bytes=status.st_size,
                 logical_block_bytes=_SECTOR_BYTES, physical_block_bytes=4096, backing_file=str(path),
                 read_only=not os.access(path, os.W_OK))


def _kind(disk: Path) -> str:
    for prefix in ("loop", "zram", "ram", "dm", "md"):
        if disk.name.startswith(prefix):
            return prefix
    return "disk"


def _serial(disk: Path) -> str:
    """NVMe, virtio: a text file. SCSI, SATA: vital product data page 0x80. Others: the WWN, the UUID of a volume."""
    for name in ("device/serial", "serial"):
        if text := text_in(disk / name):
            return text
    with suppress(OSError):
        page = (disk / "device/vpd_pg80").read_bytes()
        if text := page[4:].decode("ascii", "ignore").strip():
            return text
    return text_in(disk / "wwid") or text_in(disk / "device/wwid") or _volume_uuid(disk)


def _volume_uuid(disk: Path) -> str:
    """As lasting as the volume, unlike its number. Of cryptsetup without a header it has the name only: "" then."""
    uuid = text_in(disk / "dm/uuid") or text_in(disk / "md/uuid")
    return "" if uuid.startswith("CRYPT-") and not re.match(r"CRYPT-\w+-[0-9a-f]{32}-", uuid) else uuid


def _active_scheduler(text: str) -> str:
    """mq-deadline of `none [mq-deadline] kyber`."""
    return text.partition("[")[2].partition("]")[0] or text


def dm_targets(number: str, *, state: bool = False) -> list[DmTarget] | None:
    """The lines of the table of a dm device, MAJOR:MINOR. None without the permission to read it. state: with the state
    of each target, as `dmsetup status` prints it, instead of its parameters."""
    major, minor = (int(part) for part in number.split(":"))
    encoded = (minor & 0xFF) | major << 8 | (minor & ~0xFF) << 12
    size = 64 << 10
    while size <= _MAX_TABLE_BYTES:
        buffer = bytearray(size)
        _DM_HEADER.pack_into(buffer, 0, 4, 0, 0, size, _DM_HEADER.size, 0, 0, 0 if state else _STATUS_TABLE, 0, 0,
                             encoded, b"", b"")
        try:
            with _DM_CONTROL.open("rb", buffering=0) as control:
                fcntl.ioctl(control, _TABLE_STATUS, buffer)
        except OSError:
            return None
        start, count, flags = (_DM_HEADER.unpack_from(buffer)[index] for index in (4, 5, 7))
        if not flags & _BUFFER_FULL:
            return _targets(bytes(buffer[start:]), count)
        size *= 4
    return None


def _targets(table: bytes, count: int) -> list[DmTarget]:
    targets: list[DmTarget] = []
    at = 0
    for _ in range(count):
        first, sectors, _, following, kind = _DM_TARGET.unpack_from(table, at)
        parameters = table[at + _DM_TARGET.size:].partition(b"\0")[0]
        targets.append((first, sectors, *(text.rstrip(b"\0").decode(errors="replace") for text in (kind, parameters))))
        at = following
    return targets
