"""The drives of a capture: behind devices, a directory, or the directory where a command starts."""

from collections.abc import Callable, Iterable
from pathlib import Path

from blkreel.common.device import (
    SYS,
    Drive,
    block_directory,
    blocks_under,
    drive_of,
    drives_under,
    multipath_paths,
    underlying_disks,
)
from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.system import integer_in, text_in
from blkreel.traces.format.metadata_types import Volume

from .counters import completed_ios, read_stat

SYS_BLOCK, SYS_BTRFS = SYS / "class/block", SYS / "fs/btrfs"
MAX_DRIVES = 16  # records.h, MAX_DEVICES
LAYERS = ("device", "volume")


def drives_to_watch(devices: list[str], path: str | None, notice: Callable[[str], None],
                    layer: str = "device") -> list[Drive]:
    """The whole drives behind devices (partitions and volumes resolved), or those under a directory.

    layer: "volume" for the devices themselves, of which at least one must be a volume. notice: takes a line for the
    user where the drive is not the device that was named. Raises UsageError or BlkreelError where a drive does not
    exist.
    """
    drives: dict[str, Drive] = {}
    if layer == "volume":
        drives = {drive.name: drive for drive in _named(devices, path, notice)}
        devices, path = [], None
    for device in devices:
        for drive in _drives_behind(device, notice):
            drives[drive.name] = drive
    if path is not None:
        for drive in drives_under(path):
            drives[drive.name] = drive
        notice(f"{path} is on {', '.join(drive.path for drive in drives.values())}")
    for drive in drives.values():
        if paths := paths_of(drive):
            notice(f"{drive.path} is an NVMe multipath head: the requests of its paths ({', '.join(paths)}) are "
                   "recorded")
    if len(drives) > MAX_DRIVES:
        raise UsageError(f"{len(drives)} drives are more than the {MAX_DRIVES} of one capture",
                         "capture some of them, or run two captures")
    return list(drives.values())


def named_blocks(devices: list[str], path: str | None) -> list[Path]:
    """The directories in sysfs of the devices, partitions and volumes that were named, or that a directory is on."""
    return [*(block_directory(_device(device)) for device in devices),
            *(blocks_under(Path(path)) if path is not None else ())]


def drives_added(devices: list[Path], file_system: list[Path], volumes: Iterable[Volume],
                 drives: list[Drive]) -> set[str]:
    """The names of the drives that these blocks lie on now and that are not recorded: an array is rebuilt, a volume or
    a btrfs is extended. volumes: of the start; after they were taken down they have no drives."""
    known = {*(drive.name for drive in drives), *(volume["name"] for volume in volumes)}
    members = [member.resolve() for block in file_system for entry in SYS_BTRFS.glob(f"*/devices/{block.name}")
               for member in entry.parent.iterdir()]
    # A partition that is removed looks like a drive of its own.
    return {disk.name for block in (*devices, *file_system, *members) for disk in underlying_disks(block)
            if disk.exists()} - known


def _named(devices: list[str], path: str | None, notice: Callable[[str], None]) -> list[Drive]:
    """The devices themselves, with their own I/O. Raises UsageError if none is a volume."""
    blocks = named_blocks([], path)
    if len(blocks) > 1:
        nodes = [node_of(block) for block in blocks]
        volumes = " ".join(node for node in nodes if is_volume(drive_of(node)))
        raise UsageError(f"{path} is on {', '.join(nodes)}: a file system of several devices has no I/O of its own in "
                         "the block layer", "record the drives: --layer device" +
                         (f"; or the volumes: {volumes} --layer volume" if volumes else ""))
    drives = [*map(_device, devices), *(drive_of(node_of(block)) for block in blocks)]
    if blocks:
        notice(f"{path} is on {drives[-1].path}")
    if not any(is_volume(drive) for drive in drives):
        raise UsageError(f"no volume: {', '.join(drive.path for drive in drives)}",
                         "name a volume (dm, md, bcache), as lsblk lists them, or leave out --layer volume")
    return drives


def is_volume(drive: Drive) -> bool:
    """Whether other block devices are below it."""
    return underlying_disks(block_directory(drive)) != [block_directory(drive)]


def node_of(block: Path) -> str:
    """/dev/cciss/c0d0 of a directory cciss!c0d0 in sysfs."""
    return f"/dev/{block.name.replace('!', '/')}"


def _device(device: str) -> Drive:
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
    return drive


def _drives_behind(device: str, notice: Callable[[str], None]) -> list[Drive]:
    below = underlying_disks(block_directory(_device(device)))
    drives = [drive_of(node_of(disk)) for disk in below]
    names = ", ".join(disk.path for disk in drives)
    if names != str(Path(device).resolve()):
        notice(f"{device} is on {names}: the whole drive is recorded")
    return drives


def layer_of(drive: Drive) -> str:
    """What a trace of this drive records: "request", or "bio" where its driver has no requests, such as zram."""
    return "request" if (block_directory(drive) / "mq").is_dir() or paths_of(drive) else "bio"


def fua_of(drive: Drive) -> bool | None:
    """Whether the drive has FUA; without it the kernel flushes after the write. None if the kernel does not say."""
    return {"0": False, "1": True}.get(text_in(block_directory(drive) / "queue/fua"))


def paths_of(drive: Drive) -> list[str]:
    """The names of the paths of an NVMe multipath head, whose requests are recorded; none for any other drive."""
    return [path.name for path in multipath_paths(block_directory(drive), SYS_BLOCK)]


def helper_arguments(drives: list[Drive]) -> list[str]:
    """The drives in words of the capture helper, which follows bios from a volume (dm, md, bcache) on one of them, and
    from a multipath head to its paths."""
    words = [word for drive in drives for word in ("--device", f"{drive.major}:{drive.minor}")]
    on_volume = any(any(block_directory(drive).glob(holders)) for drive in drives
                    for holders in ("holders/*", f"{drive.name}*/holders/*"))
    return [*words, "--volumes"] if on_volume or any(map(paths_of, drives)) else words


def refuse_zoned(drives: list[Drive], source: str) -> None:
    """Raises BlkreelError for a source whose events of appends and zone management are those of other operations."""
    zoned = [drive.path for drive in drives if drive.zoned]
    if zoned:
        raise BlkreelError(f"{source} cannot record {', '.join(zoned)}: its events do not distinguish operations on "
                           "zones", "capture with --source bpf")


def refuse_multipath(drives: list[Drive], source: str) -> None:
    """Raises BlkreelError for a source that filters by device number: the paths of a head are hidden disks."""
    heads = [drive.path for drive in drives if paths_of(drive)]
    if heads:
        raise BlkreelError(f"{source} cannot record {', '.join(heads)}: the paths of an NVMe multipath head have no "
                           "device number to filter by", "capture with --source bpf")


def size_bytes_now(name: str) -> int:
    """Of the drive with this name in sysfs; 0 if there is none any more."""
    return integer_in(SYS_BLOCK / name / "size") * 512


def ios_per_s_since_boot(drives: list[Drive]) -> float:
    """Of all these drives together: reads, writes, discards and flushes, by the kernel's counters; 0 if unknown."""
    counts = [completed_ios(read_stat(SYS_BLOCK / drive.name.replace("/", "!") / "stat") or []) for drive in drives]
    ios = sum(sum(of_drive.values()) for of_drive in counts)
    uptime = text_in(Path("/proc/uptime")).split()
    return ios / float(uptime[0]) if uptime else 0.0
