"""What a drive is: found from a node, a partition or a directory, and described for a trace's metadata."""

import hashlib
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import UsageError

SYS = Path("/sys")
_SECTOR_BYTES = 512  # sysfs counts in these whatever the drive's block size


@dataclass(frozen=True)
class Drive:
    """A whole drive, or a regular file that stands in for one.

    kind: disk, loop, ram, zram, dm, md, file, or nil where there is no drive at all. queue_depth: nr_requests of its
    queue. serial: as the drive
    gives it, "" where it has none; serial_hash goes into traces instead. backing_file: of a loop device.
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
    rotational: bool = False
    write_cache: str = ""
    backing_file: str = ""
    read_only: bool = False

    @property
    def serial_hash(self) -> str:
        """Tells units apart in shared results without giving the serial away; "" where there is none."""
        if not self.serial:
            return ""
        return hashlib.sha256(f"blkreel:{self.model}:{self.serial}".encode()).hexdigest()[:16]


def drive_of(path, sys_root: Path = SYS) -> Drive:
    """The whole drive behind a device node, a partition, a link to one, or a regular file.

    Raises UsageError where `path` does not exist or is neither.
    """
    given, real = path, Path(os.path.realpath(path))
    try:
        status = real.stat()
    except OSError as error:
        raise UsageError(f"no such device: {given} ({error.strerror})", "list drives with: blkreel drives") from None
    if stat.S_ISREG(status.st_mode):
        return _file_drive(real, status)
    if not stat.S_ISBLK(status.st_mode):
        raise UsageError(f"{given} is not a block device", "list drives with: blkreel drives")
    return _drive(whole_disk(_block_directory(status.st_rdev, sys_root, given)))


def drives_under(directory, sys_root: Path = SYS, mountinfo: Path = Path("/proc/self/mountinfo")) -> list[Drive]:
    """The drives that hold the files under a directory; more than one for a volume that spans several.

    Device-mapper, md and multi-device btrfs volumes are followed down to their drives. Raises UsageError where
    the directory is on no drive of this machine (tmpfs, a network mount).
    """
    try:
        number = Path(directory).stat().st_dev
    except OSError as error:
        raise UsageError(f"no such directory: {directory} ({error.strerror})") from None
    try:
        blocks = [_block_directory(number, sys_root, directory)]
    except UsageError:
        # btrfs and overlayfs have numbers of their own; their mount names the device.
        blocks = _blocks_of_mount(Path(directory), number, sys_root, mountinfo)
    disks = {disk.name: disk for block in blocks for disk in underlying_disks(block)}
    return [_drive(disk) for _, disk in sorted(disks.items())]


def list_drives(sys_root: Path = SYS) -> list[Drive]:
    """All drives that hold something, in the order of their names. Empty loop and ram devices are left out."""
    found = []
    for block in sorted((sys_root / "class/block").iterdir()):
        disk = block.resolve()
        if not (disk / "partition").exists() and _integer(disk / "size") > 0:
            found.append(_drive(disk))
    return found


def describe(drive: Drive) -> dict:
    """The drive as an entry of the metadata key `devices`: without its serial."""
    entry = asdict(drive)
    del entry["serial"]
    return {**entry, "serial_hash": drive.serial_hash}


def whole_disk(block: Path) -> Path:
    """The sysfs directory of the drive that a partition lies on; the directory itself for a whole drive."""
    return block.parent if (block / "partition").exists() else block


def underlying_disks(block: Path) -> list[Path]:
    """The sysfs directories of the drives that a dm or md volume is made of; the drive itself otherwise."""
    disk = whole_disk(block)
    slaves = sorted((disk / "slaves").glob("*"))
    if not slaves:
        return [disk]
    return [lower for slave in slaves for lower in underlying_disks(slave.resolve())]


def block_directory(drive: Drive, sys_root: Path = SYS) -> Path:
    """The sysfs directory of a drive."""
    return (sys_root / "class/block" / drive.name).resolve()


def _block_directory(number, sys_root, given) -> Path:
    block = sys_root / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
    if not block.exists():
        raise UsageError(f"{given} is on no drive of this machine", "name one of: blkreel drives")
    return block.resolve()


def _blocks_of_mount(directory, number, sys_root, mountinfo) -> list[Path]:
    source = None
    for line in mountinfo.read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == f"{os.major(number)}:{os.minor(number)}":
            source = rest.split()[1]
    if not source or not source.startswith("/dev/"):
        raise UsageError(f"{directory} is on {source or 'a file system'} that no drive of this machine holds",
                         "name a directory on a drive, or a device: blkreel drives")
    block = _block_directory(Path(source).stat().st_rdev, sys_root, directory)
    for member in (sys_root / "fs/btrfs").glob(f"*/devices/{block.name}"):
        return [device.resolve() for device in sorted(member.parent.iterdir())]
    return [block]


def _drive(disk: Path) -> Drive:
    name = disk.name.replace("!", "/")  # cciss!c0d0 is /dev/cciss/c0d0
    major, minor = (int(part) for part in _text(disk / "dev").split(":"))
    queue = disk / "queue"
    return Drive(
        name=disk.name, path=f"/dev/{name}", kind=_kind(disk), major=major, minor=minor,
        size_bytes=_integer(disk / "size") * _SECTOR_BYTES,
        logical_block_bytes=_integer(queue / "logical_block_size") or _SECTOR_BYTES,
        physical_block_bytes=_integer(queue / "physical_block_size") or _SECTOR_BYTES,
        model=_text(disk / "device/model"),
        firmware=_text(disk / "device/firmware_rev") or _text(disk / "device/rev"),
        serial=_serial(disk),
        scheduler=_chosen(_text(queue / "scheduler")),
        queue_depth=_integer(queue / "nr_requests"),
        rotational=_text(queue / "rotational") == "1",
        write_cache=_text(queue / "write_cache"),
        backing_file=_text(disk / "loop/backing_file"),
        read_only=_text(disk / "ro") == "1")


def _file_drive(path, status) -> Drive:
    return Drive(name=path.name, path=str(path), kind="file", major=0, minor=0, size_bytes=status.st_size,
                 logical_block_bytes=_SECTOR_BYTES, physical_block_bytes=4096, backing_file=str(path),
                 read_only=not os.access(path, os.W_OK))


def _kind(disk) -> str:
    for prefix in ("loop", "zram", "ram", "dm", "md"):
        if disk.name.startswith(prefix):
            return prefix
    return "disk"


def _serial(disk) -> str:
    """NVMe and virtio give it as text, SCSI and SATA in vital product data page 0x80, others at least a WWN."""
    for name in ("device/serial", "serial"):
        if text := _text(disk / name):
            return text
    try:
        page = (disk / "device/vpd_pg80").read_bytes()
        if text := page[4:].decode("ascii", "ignore").strip():
            return text
    except OSError:
        pass
    return _text(disk / "wwid") or _text(disk / "device/wwid")


def _chosen(text) -> str:
    """`none [mq-deadline] kyber` is mq-deadline."""
    return text.partition("[")[2].partition("]")[0] or text


def _text(path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _integer(path) -> int:
    text = _text(path)
    return int(text) if text.isdigit() else 0
