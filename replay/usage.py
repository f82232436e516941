"""Who uses a drive: mounts, swap, volumes built on it, loop devices over it."""

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from .target import Target, find_target, is_block_device


@dataclass(frozen=True)
class Kernel:
    """Where the kernel tells who uses what; tests point it elsewhere."""

    sys: Path = Path("/sys")
    mountinfo: Path = Path("/proc/self/mountinfo")
    swaps: Path = Path("/proc/swaps")


@dataclass(frozen=True)
class Use:
    """device: the drive or the partition of it. how: `mounted at /home`. remedy: the command that ends it."""

    device: str
    how: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.device} is {self.how}"


def uses_of(target: Target, kernel: Kernel) -> list[Use]:
    """Everything that uses the target's whole drive or any partition of it, mounts first."""
    if target.block is None:
        return [*_swap(kernel, {}, target.path), *_loops_over(kernel, {}, target.path)]
    nodes = _nodes(target.disk_block)
    found = [*_mounts(kernel, nodes), *_swap(kernel, nodes, None), *_holders(target.disk_block, nodes),
             *_btrfs(kernel, nodes), *_loops_over(kernel, nodes, None)]
    backing = target.drive.backing_file
    if target.drive.kind == "loop" and backing:
        found += _uses_of_backing(target, Path(backing), kernel)
    return found


def _nodes(disk: Path) -> dict[str, str]:
    """`major:minor` to name, of a drive and its partitions."""
    blocks = [disk, *(entry.parent for entry in disk.glob("*/partition"))]
    return {(block / "dev").read_text().strip(): block.name for block in blocks}


def _mounts(kernel, nodes):
    for line in kernel.mountinfo.read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        number, where = fields.split()[2], _unescaped(fields.split()[4])
        source = _unescaped(rest.split()[1])
        # btrfs gives its mounts a number of their own; there the source names the device.
        name = nodes.get(number) or _named(source, nodes)
        if name:
            yield Use(f"/dev/{name}", f"mounted at {where}", f"umount {shlex.quote(where)}")


def _swap(kernel, nodes, file):
    try:
        lines = kernel.swaps.read_text().splitlines()[1:]
    except OSError:
        return  # a kernel without swap
    for line in lines:
        path = _unescaped(line.split()[0])
        name = _named(path, nodes)
        if name:
            yield Use(f"/dev/{name}", "used as swap", f"swapoff {shlex.quote(path)}")
        elif file and _same(path, file):
            yield Use(str(file), "used as swap", f"swapoff {shlex.quote(path)}")


def _holders(disk, nodes):
    for name in nodes.values():
        block = disk if name == disk.name else disk / name
        for holder in sorted((block / "holders").glob("*")):
            stop = {"md": f"mdadm --stop /dev/{holder.name}"}.get(holder.name[:2], f"dmsetup remove /dev/{holder.name}")
            yield Use(f"/dev/{name}", f"part of the volume {holder.name}", stop)


def _btrfs(kernel, nodes):
    for member in (kernel.sys / "fs/btrfs").glob("*/devices/*"):
        if member.name in nodes.values():
            yield Use(f"/dev/{member.name}", "part of a mounted btrfs", "umount it")


def _loops_over(kernel, nodes, file, apart_from=""):
    """Loop devices whose image is this drive, one of its partitions, or this file."""
    for entry in sorted((kernel.sys / "class/block").glob("loop*/loop/backing_file")):
        loop = entry.parent.parent.name
        if loop == apart_from:
            continue
        try:
            backing = entry.read_text().strip()
        except OSError:
            continue  # detached since it was listed
        name = _named(backing, nodes)
        if name or (file and _same(backing, file)):
            yield Use(f"/dev/{name}" if name else str(file), f"the image of /dev/{loop}", f"losetup -d /dev/{loop}")


def _uses_of_backing(target, backing, kernel):
    """A loop device is a name for its image: what uses that, uses the loop device."""
    if is_block_device(backing):
        below = find_target(backing, kernel.sys)
        own = f"the image of {target.drive.path}"
        return [use for use in uses_of(below, kernel) if use.how != own]
    return [*_swap(kernel, {}, backing), *_loops_over(kernel, {}, backing, apart_from=target.drive.name)]


def _named(path: str, nodes) -> str | None:
    """The drive or partition that a path names, through links such as /dev/mapper/x or /dev/disk/by-id/y."""
    if not path.startswith("/dev/"):
        return None
    name = Path(os.path.realpath(path)).name
    return name if name in nodes.values() else None


def _same(one, other) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def _unescaped(text: str) -> str:
    """/proc writes a space in a path as \\040."""
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), text)
