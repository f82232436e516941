"""Identity behind a path, a descriptor or a loop device: a block device by its number, a file by device and inode.

A path identifies nothing: it may be a hard link, lie in another mount namespace, or be another file's by now.
"""

import ctypes
import fcntl
import os
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_LOOP_GET_STATUS64 = 0x4C05
# struct loop_info64: device, inode, rdevice, offset, size limit; the rest is not used.
_LOOP_INFO64 = struct.Struct("=5Q192x")

# Python's os has had statx since 3.15 only.
_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD, _AT_STATX_DONT_SYNC, _STATX_BASIC, _STATX_BTIME = -100, 0x4000, 0x7FF, 0x800
# struct statx: mask, blksize, attributes, nlink, uid, gid, mode, inode, size, blocks, attributes mask, then atime,
# btime, ctime, mtime as (seconds, nanoseconds), rdev, dev.
_STATX = struct.Struct("=IIQIIIHxxQQQQ" + "qIxxxx" * 4 + "IIII" + "112x")

Identity = tuple[str, int, int]


@dataclass(frozen=True)
class Status:
    """As of stat(2). identity: None for neither a block device nor a file. born_ns: 0 if it is not recorded."""

    identity: Identity | None
    size_bytes: int
    allocated_bytes: int
    modified_ns: int
    born_ns: int


def status_of(path: str | os.PathLike[str], *, cached: bool = False) -> Status:
    """Raises OSError. cached: as the kernel has it, without waiting for the server of a network file system."""
    buffer = ctypes.create_string_buffer(_STATX.size)
    if _LIBC.statx(_AT_FDCWD, os.fsencode(path), _AT_STATX_DONT_SYNC if cached else 0, _STATX_BASIC | _STATX_BTIME,
                   buffer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    (mask, _, _, _, _, _, mode, inode, size_bytes, sectors, _, _, _, born_s, born_ns, _, _, modified_s, modified_ns,
     node_major, node_minor, major, minor) = _STATX.unpack(buffer.raw)
    identity = None
    if stat.S_ISBLK(mode):
        identity = block_identity(node_major, node_minor)
    elif stat.S_ISREG(mode):
        identity = ("file", os.makedev(major, minor), inode)
    return Status(identity, size_bytes, sectors * 512, modified_s * 10**9 + modified_ns,
                  born_s * 10**9 + born_ns if mask & _STATX_BTIME else 0)


def identity_of(path: str | os.PathLike[str]) -> Identity | None:
    """None also if it does not exist."""
    try:
        return status_of(path).identity
    except OSError:
        return None


def block_identity(major: int, minor: int) -> Identity:
    return ("block", major, minor)


def number_of(block: Path) -> Identity:
    """Of a block device by its sysfs directory. Raises OSError if it was removed."""
    major, minor = (block / "dev").read_text().split(":")
    return block_identity(int(major), int(minor))


def loop_backing(block: Path, dev: Path = Path("/dev")) -> Identity | None:
    """The file or drive attached to the loop device of a sysfs directory; None if there is none.

    Raises OSError if the device cannot be opened: by an ordinary user, or in a container without it.
    """
    with _opened(block, dev) as file:
        try:
            info = fcntl.ioctl(file, _LOOP_GET_STATUS64, bytes(_LOOP_INFO64.size))
        except OSError:
            return None  # detached, perhaps since it was listed
    device, inode, rdevice, _, _ = _LOOP_INFO64.unpack(info)
    # Of a file it is 0, or in older kernels the device of its file system.
    if rdevice not in (0, device):
        return block_identity(os.major(rdevice), os.minor(rdevice))
    return ("file", device, inode)


def _opened(block: Path, dev: Path) -> IO[bytes]:
    """A block device by its number, whether or not its node is where it should be."""
    identity = number_of(block)
    node = dev / block.name.replace("!", "/")
    if identity_of(node) == identity:
        return _open(node, identity)
    # Not under the usual name: another program might take that for the device's lasting node.
    node = dev / f".blkreel-{block.name}-{os.getpid()}"
    os.mknod(node, 0o600 | stat.S_IFBLK, os.makedev(*identity[1:]))
    try:
        return _open(node, identity)
    finally:
        with suppress(OSError):
            node.unlink()


def _open(node: Path, identity: Identity) -> IO[bytes]:
    file = open(os.open(node, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
    if identity_of(f"/proc/self/fd/{file.fileno()}") != identity:
        file.close()
        raise OSError(f"{node} was replaced while it was opened")
    return file
