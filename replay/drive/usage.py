"""Uses of a drive: mounts, swap, volumes built on it, loop devices over it, programs that have it open."""

import os
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from blkreel.common.device import refuse_without_sysfs
from blkreel.common.errors import SafetyError
from blkreel.common.system import MOUNTINFO, mounts_in, read_kernel_lines, read_kernel_text, text_in, unescaped

from .file_identity import Identity, identity_of, loop_backing, number_of, status_of
from .openers import openers_of
from .target import Target, find_target

_CLOSE_WAIT_S = 3.0
OTHER_DRIVE = "it holds the running system: name another drive, listed by: blkreel drives"
_SYSTEM_MOUNTS = ("/", "/boot", "/boot/efi", "/efi", "/home", "/opt", "/usr", "/var")


@dataclass(frozen=True)
class Kernel:
    """Files of the kernel that list uses; tests give others."""

    sys: Path = Path("/sys")
    mountinfo: Path = MOUNTINFO
    swaps: Path = Path("/proc/swaps")
    dev: Path = Path("/dev")


@dataclass(frozen=True)
class Use:
    """device: the drive or the partition of it. how: `mounted at /home`. remedy: the command that ends it."""

    device: str
    how: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.device} is {self.how}"


def uses_of(target: Target, kernel: Kernel) -> list[Use]:
    """Everything but programs that uses the target's whole drive or any partition of it, mounts first.

    Raises BlkreelError if the kernel does not show them.
    """
    refuse_without_sysfs(kernel.sys)
    disk = target.disk_block
    if disk is None:
        return [*_swap(kernel, {}, target.path), *_loops_over(kernel, _paths(target))]
    nodes = _nodes(disk)
    uses = [*_mounts(kernel, nodes), *_swap(kernel, nodes, None), *_holders(disk, nodes),
            *_btrfs(kernel, nodes), *_loops_over(kernel, _paths(target))]
    backing = backing_of(target, kernel)
    if backing:
        uses += _uses_of_backing(target, backing, kernel)
    return uses


def refuse_used(target: Target, uses: list[Use]) -> None:
    """Raises SafetyError if there are any. A use by the running system comes first, since it cannot be ended."""
    if uses:
        use = next((use for use in uses if use.remedy == OTHER_DRIVE), uses[0])
        more = f" (and {len(uses) - 1} more uses)" if len(uses) > 1 else ""
        remedy = use.remedy if use.remedy == OTHER_DRIVE else f"end this use: {use.remedy}"
        raise SafetyError(f"{target.path} is in use: {use}{more}", remedy)


def refuse_opened(target: Target, kernel: Kernel) -> int:
    """Raise SafetyError if a program keeps the drive open. Returns the number of processes that cannot be inspected.

    udev and drive monitors open a drive briefly whenever it changes, so only programs that still have it open after
    _CLOSE_WAIT_S count.
    """
    deadline = time.monotonic() + _CLOSE_WAIT_S
    while True:
        uses, unseen = openings_of(target, kernel)
        if not uses or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    refuse_used(target, uses)
    return unseen


def openings_of(target: Target, kernel: Kernel) -> tuple[list[Use], int]:
    """Programs that have the drive, a partition of it, or the file under a loop device open.

    The number is that of processes which this user cannot inspect.
    """
    paths = _paths(target)
    lower: Target | None = target
    while lower and (backing := backing_of(lower, kernel)):
        paths[backing] = lower.drive.backing_file
        lower = target_of(backing, kernel)
        paths |= _paths(lower) if lower else {}
    openers, unseen = openers_of(paths)
    return [Use(opener.device, f"{opener.how} in {opener.name} (process {opener.pid})",
                f"end that program; list all with: lsof {shlex.quote(opener.device)}") for opener in openers], unseen


def backing_of(target: Target, kernel: Kernel) -> Identity | None:
    """The file or drive under a loop device; None for any other drive."""
    if target.drive.kind != "loop" or target.disk_block is None:
        return None
    try:
        return loop_backing(target.disk_block, kernel.dev)
    except OSError:
        # Without the right to open it nothing is written to it, either.
        return identity_of(target.drive.backing_file)


def target_of(identity: Identity, kernel: Kernel) -> Target | None:
    """The block device of that number, whatever its node was called when it was attached; None for a file."""
    kind, major, minor = identity
    if kind != "block":
        return None
    name = (kernel.sys / f"dev/block/{major}:{minor}").resolve().name
    return find_target(kernel.dev / name.replace("!", "/"), kernel.sys)


def _paths(target: Target) -> dict[Identity, str]:
    """What a descriptor of the drive or of a partition of it refers to, each with its path."""
    disk = target.disk_block
    if disk is None:
        identity = status_of(target.path).identity
        return {identity: str(target.path)} if identity else {}
    return {number_of(block): f"/dev/{block.name}"
            for block in (disk, *(entry.parent for entry in disk.glob("*/partition")))}


def _nodes(disk: Path) -> dict[str, str]:
    """`major:minor` to name, of a drive and its partitions."""
    blocks = [disk, *(entry.parent for entry in disk.glob("*/partition"))]
    return {(block / "dev").read_text().strip(): block.name for block in blocks}


def _mounts(kernel: Kernel, nodes: Mapping[str, str]) -> Iterator[Use]:
    for mount in mounts_in(kernel.mountinfo):
        # btrfs gives its mounts a number of their own; there the source names the device.
        name = nodes.get(mount.device) or _named(mount.source, nodes)
        if name:
            yield Use(f"/dev/{name}", f"mounted at {mount.point}", OTHER_DRIVE if mount.point in _SYSTEM_MOUNTS
                      else f"umount {shlex.quote(mount.point)}")


def _swap(kernel: Kernel, nodes: Mapping[str, str], file: Path | str | None) -> Iterator[Use]:
    try:
        lines = read_kernel_lines(kernel.swaps)[1:]
    except OSError:
        return  # a kernel without swap
    for line in lines:
        path = unescaped(line.split(" ")[0].split("\t")[0])
        name = _named(path, nodes)
        if name:
            yield Use(f"/dev/{name}", "used as swap", f"swapoff {shlex.quote(path)}")
        elif file and _same(path, file):
            yield Use(str(file), "used as swap", f"swapoff {shlex.quote(path)}")


def _holders(disk: Path, nodes: Mapping[str, str]) -> Iterator[Use]:
    for name in nodes.values():
        block = disk if name == disk.name else disk / name
        for holder in sorted((block / "holders").glob("*")):
            stop = {"md": f"mdadm --stop /dev/{holder.name}",
                    "bc": f"echo 1 >/sys/block/{holder.name}/bcache/stop"}.get(
                        holder.name[:2], f"dmsetup remove /dev/{holder.name}")
            label = text_in(holder / "dm/name")
            yield Use(f"/dev/{name}", f"part of the volume {holder.name}{f' ({label})' if label else ''}", stop)


def _btrfs(kernel: Kernel, nodes: Mapping[str, str]) -> Iterator[Use]:
    for member in (kernel.sys / "fs/btrfs").glob("*/devices/*"):
        if member.name in nodes.values():
            yield Use(f"/dev/{member.name}", "part of a mounted btrfs", f"list its mounts: findmnt /dev/{member.name}")


def _loops_over(kernel: Kernel, paths: Mapping[Identity, str], apart_from: str = "") -> Iterator[Use]:
    """Loop devices whose image is one of `paths`."""
    for entry in sorted((kernel.sys / "class/block").glob("loop*/loop/backing_file")):
        block = entry.parent.parent
        if block.name == apart_from:
            continue
        perhaps = ""
        try:
            backing = loop_backing(block, kernel.dev)
            path = paths.get(backing) if backing else None
        except OSError:
            path, perhaps = _by_path(entry, block, paths)
        if path:
            yield Use(path, f"{perhaps}the image of /dev/{block.name}",
                      f"losetup -d /dev/{block.name}{', or run as root' if perhaps else ''}")


def _by_path(entry: Path, block: Path, paths: Mapping[Identity, str]) -> tuple[str | None, str]:
    """Which of `paths` is the image of a loop device that this user cannot open, and `perhaps ` if that is uncertain.

    The path of the image leads to another file if it is of another mount namespace or was deleted. So an image of
    exactly the loop device's size counts as its own, unless the file at that path has this size too.
    """
    try:
        backing = read_kernel_text(entry)
    except OSError:
        return None, ""  # detached since it was listed
    there, named = identity_of(backing), os.path.realpath(backing)
    for identity, path in paths.items():
        if identity == there or path == named:
            return path, ""
    if not _gives(block, backing):
        for (kind, _, _), path in paths.items():
            if kind == "file" and _gives(block, path):
                return path, "perhaps "
    return None, ""


def _gives(block: Path, image: str) -> bool:
    """Whether a loop device over this file would have the size that the device has."""
    try:
        size_bytes, offset_bytes, limit_bytes = (
            int((block / name).read_text()) for name in ("size", "loop/offset", "loop/sizelimit"))
        given_bytes = status_of(image).size_bytes - offset_bytes
    except OSError:
        return False
    return size_bytes == (min(given_bytes, limit_bytes) if limit_bytes else given_bytes) // 512


def _uses_of_backing(target: Target, backing: Identity, kernel: Kernel) -> list[Use]:
    """A loop device and its image are one: a user of the image uses the loop device."""
    below = target_of(backing, kernel)
    if below:
        own = f"the image of {target.drive.path}"
        return [use for use in uses_of(below, kernel) if use.how != own]
    path = target.drive.backing_file
    return [*_swap(kernel, {}, path), *_loops_over(kernel, {backing: path}, apart_from=target.drive.name)]


def _named(path: str, nodes: Mapping[str, str]) -> str | None:
    """The drive or partition that a path names, through links such as /dev/mapper/x or /dev/disk/by-id/y."""
    if not path.startswith("/dev/"):
        return None
    name = Path(os.path.realpath(path)).name
    return name if name in nodes.values() else None


def _same(a: Path | str, b: Path | str) -> bool:
    try:
        return Path(a).samefile(b)
    except OSError:
        return False
