"""What a drive does beyond reads and plain writes: write hints, atomic writes, verify and compare commands.

The kernel keeps a hint for the inode of a node, not for a write. So a replay with hints has a private node of the drive
for each hint, and writes through all of them at once.
"""

import ctypes
import errno
import fcntl
import os
import platform
import re
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from blkreel.common.system import closing_descriptor
from blkreel.traces.format.schema import HINTS

from .claim import Claim
from .target import Identity, Target

_F_GET_RW_HINT, _F_SET_RW_HINT = 1035, 1036  # of the inode, not of the descriptor
_HINT = struct.Struct("Q")
_HINTS_SINCE = (6, 9)
_NODES = Path("/dev")  # a file system that allows device nodes
# struct nvme_passthru_cmd, and the NVM Express base and command set specifications 2.0: Identify Controller, ONCS, VSL.
_ADMIN_COMMAND = struct.Struct("BBHIIIQQII6III")
_NVME_IOCTL_ADMIN_CMD = 0xC0484E41
_IDENTIFY, _IDENTIFY_BYTES = 0x06, 4096
_OF_CONTROLLER, _OF_COMMAND_SET = 0x01, 0x06
_ONCS, _ONCS_COMPARE, _ONCS_VERIFY = struct.Struct("<H"), 1 << 0, 1 << 7
_ONCS_AT = 520
_UNIT_BYTES = 4096  # the smallest page of a controller
_NO_LIMIT = 40  # the exponent of a length that no namespace exceeds
# Why a real drive does not get a verify or a compare.
NOT_PASSED, NO_COMMAND = "only --passthrough issues them", "the drive has no such command"


@dataclass(frozen=True)
class WriteSupport:
    """hints: descriptors of the drive for writing, one for each of HINTS; empty: the drive gets no hints.

    atomic_bytes: least and greatest length of an atomic write; 0, 0: there are none. verify_bytes: greatest length of a
    verify command; 0: the drive does not have it. compare_data: descriptor of memory with the data of its compares, as
    native/target/compares.h has it; None: it gets none.
    """

    hints: tuple[int, ...] = ()
    atomic_bytes: tuple[int, int] = (0, 0)
    verify_bytes: int = 0
    compare_data: int | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that a helper must inherit."""
        return self.hints if self.compare_data is None else (*self.hints, self.compare_data)


def hints_obstacle(target: Target) -> str | None:
    """Why the target gets no write hints; None if it does."""
    if target.is_nil:
        return None
    if target.block is None:
        return "a file has one hint for all its writes"
    release = platform.release()
    version = re.match(r"(\d+)\.(\d+)", release)
    if version and tuple(map(int, version.groups())) < _HINTS_SINCE:
        return f"the kernel {release} hands no hint to a drive; Linux 6.9 does"
    try:
        with ExitStack() as stack:
            _open_nodes(target, 1, stack)
    except OSError as error:
        return f"no node of it can be made and opened: {error.strerror}; run it as root"
    return None


def atomic_bytes(target: Target) -> tuple[int, int]:
    """The least and the greatest length of an atomic write; 0, 0 if the target has none."""
    queue = target.disk_block / "queue" if target.disk_block else None
    if queue is None or target.block is None:
        return 0, 0
    try:
        least, most, boundary = (int((queue / f"atomic_write_{name}_bytes").read_text())
                                 for name in ("unit_min", "unit_max", "boundary"))
        start_bytes = int((target.block / "start").read_text()) * 512 if target.partition else 0
    except (OSError, ValueError):
        return 0, 0
    if not least or start_bytes % max(least, boundary):
        return 0, 0
    return least, most


def verify_bytes(target: Target) -> int:
    """The greatest length of a verify command; 0 if the target has none, or does not answer."""
    with suppress(OSError), _opened(target) as descriptor:
        if not _optional_commands(descriptor) & _ONCS_VERIFY:
            return 0
        try:
            limit = _identify(descriptor, _OF_COMMAND_SET)[0]  # a power of two
        except OSError:
            limit = 0  # before version 2.0 of the specification there is none
        return _UNIT_BYTES << min(limit or _NO_LIMIT, _NO_LIMIT)
    return 0


def has_compare(target: Target) -> bool:
    """Whether the target has compare commands; False also if it does not answer."""
    with suppress(OSError), _opened(target) as descriptor:
        return bool(_optional_commands(descriptor) & _ONCS_COMPARE)
    return False


def _opened(target: Target) -> AbstractContextManager[int]:
    return closing_descriptor(os.open(target.path, os.O_RDONLY | os.O_CLOEXEC))


def _optional_commands(descriptor: int) -> int:
    return int(_ONCS.unpack_from(_identify(descriptor, _OF_CONTROLLER), _ONCS_AT)[0])


def _identify(descriptor: int, structure: int) -> bytes:
    data = ctypes.create_string_buffer(_IDENTIFY_BYTES)
    command = _ADMIN_COMMAND.pack(_IDENTIFY, 0, 0, 0, 0, 0, 0, ctypes.addressof(data), 0, _IDENTIFY_BYTES, structure,
                                  0, 0, 0, 0, 0, 0, 0)
    if status := fcntl.ioctl(descriptor, _NVME_IOCTL_ADMIN_CMD, bytearray(command)):
        raise OSError(errno.EIO, f"identify: status {status:#x}")
    return data.raw


@contextmanager
def write_support(claim: Claim, *, hinted: bool, passthrough: bool = False) -> Iterator[WriteSupport]:
    """Of a claimed target, while the block runs. hinted: with descriptors for hints, if there is no obstacle."""
    with ExitStack() as stack:
        hints: tuple[int, ...] = ()
        if hinted and hints_obstacle(claim.target) is None:
            with suppress(OSError):
                hints = _hinted(claim, stack)
        yield WriteSupport(hints, atomic_bytes(claim.target), verify_bytes(claim.target) if passthrough else 0)


def _hinted(claim: Claim, stack: ExitStack) -> tuple[int, ...]:
    descriptors = _open_nodes(claim.target, len(HINTS), stack)
    for number, descriptor in enumerate(descriptors, 1):
        fcntl.fcntl(descriptor, _F_SET_RW_HINT, _HINT.pack(number))
    # Each of these also became the hint of writeback to the drive: give that the one of the drive's own node again.
    own = fcntl.fcntl(claim.descriptor, _F_GET_RW_HINT, _HINT.pack(0))
    fcntl.fcntl(claim.descriptor, _F_SET_RW_HINT, own)
    return descriptors


def _open_nodes(target: Target, count: int, stack: ExitStack) -> tuple[int, ...]:
    """Descriptors of so many nodes of the drive, which have no names any more. Raises OSError."""
    descriptors = []
    with tempfile.TemporaryDirectory(prefix=".blkreel-", dir=_NODES) as directory:
        for _ in range(count):
            path = Path(directory, "drive")
            os.mknod(path, stat.S_IFBLK | 0o600, target.identity.node)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
            finally:
                path.unlink()
            stack.callback(os.close, descriptor)
            if Identity.of(os.fstat(descriptor)) != target.identity:
                raise OSError(0, "the drive was replaced")
            descriptors.append(descriptor)
    return tuple(descriptors)
