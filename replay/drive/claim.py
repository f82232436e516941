"""The claim on a target: opened once, compared with what was checked, held from the first I/O to the last.

A name may refer to something else at any moment: a link to a drive replaces a file, a loop device gets another image.
So nothing after the checks uses the name. The helper, the read-back and each flush get the claimed descriptor, and
open it again through /proc/self/fd if they need other flags.
"""

import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from blkreel.common.errors import BlkreelError, SafetyError

from .file_identity import identity_of
from .target import Identity, Target
from .usage import Kernel, backing_of, refuse_opened, refuse_used, uses_of

_LOCK_WAIT_S = 10.0
_RELEASE_WAIT_S = 3.0
_POLL_S = 0.01
# struct flock: type, whence, start, length, pid. The helper locks the first byte of the target.
_FLOCK = struct.Struct("hhqqi4x")


@dataclass(frozen=True)
class Claim:
    """descriptor: of the target, read-only. exclusive: of the whole drive, or of the file.

    The claim and the lock belong to the open file of `exclusive`, and end with the last process that has it open: a
    helper that inherits it excludes others until it ends, even if this process is killed.
    """

    descriptor: int
    exclusive: int
    identity: Identity

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that a helper must inherit."""
        return tuple({self.descriptor, self.exclusive})

    def reopen(self, flags: int) -> int:
        """Another descriptor of the same device or file, with other flags."""
        return os.open(f"/proc/self/fd/{self.descriptor}", flags | os.O_CLOEXEC)

    def wait_released(self) -> None:
        """Wait, for a limited time, until the kernel has closed the helper's files.

        A process that used io_uring ends some milliseconds before that. udev then probes the drive, which must not
        disturb the next step, and `losetup -d` or `dmsetup remove` fails until then.
        """
        deadline = time.monotonic() + _RELEASE_WAIT_S
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        while time.monotonic() < deadline:
            try:
                answer = fcntl.fcntl(self.descriptor, fcntl.F_OFD_GETLK, asked)
            except OSError:
                return  # a file system without locks
            if _FLOCK.unpack(answer)[0] == fcntl.F_UNLCK:
                return
            time.sleep(_POLL_S)


_claims: dict[Identity, Claim] = {}


def is_held(target: Target) -> bool:
    """Whether this process has the claim on it."""
    return target.identity in _claims


@contextmanager
def held(target: Target) -> Iterator[Claim | None]:
    """Claim the target while the block runs: mounts, volumes, partitioning tools and a second blkreel fail or wait.

    udev and partitioning tools probe a drive whenever a writer closes it, in the middle of the next step, unless they
    find its node locked (flock, as systemd documents for block devices). A claim that this process already has is used
    again: a test has one from its first step to its last. None for the nil target.

    The file under a loop device is locked too, if its path still leads there. The claimed drive is checked for other
    users again: of two replays that reach one image by different names at once, at least one finds the other's open
    file or loop device.

    Raises SafetyError if the name refers to something else than was checked, or if others hold it.
    """
    if target.is_nil or is_held(target):
        yield _claims.get(target.identity)
        return
    with ExitStack() as stack:
        claim = _claim(target, stack)
        _lock_backing(target, stack)
        kernel = Kernel()
        refuse_used(target, uses_of(target, kernel))
        refuse_opened(target, kernel)
        _claims[target.identity] = claim
        stack.callback(_claims.pop, target.identity)
        yield claim


def _claim(target: Target, stack: ExitStack) -> Claim:
    if target.block is None:
        exclusive = _opened(target.path, target.identity, os.O_RDONLY, stack)
        _lock(exclusive, target.path)
        return Claim(exclusive, exclusive, target.identity)
    node = Path(target.drive.path)
    whole = replace(target.identity, node=os.makedev(target.drive.major, target.drive.minor))
    # The whole drive also for a partition: its other partitions must not be mounted during the run.
    exclusive = _opened(node, whole, os.O_RDONLY | os.O_EXCL, stack)
    _lock(exclusive, node)
    descriptor = _opened(target.path, target.identity, os.O_RDONLY, stack) if target.partition else exclusive
    return Claim(descriptor, exclusive, target.identity)


def _lock_backing(target: Target, stack: ExitStack) -> None:
    path, backing = target.drive.backing_file, backing_of(target, Kernel())
    if backing and identity_of(path) == backing:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, descriptor)
        if identity_of(f"/proc/self/fd/{descriptor}") == backing:
            _lock(descriptor, Path(path))


def _opened(path: Path, expected: Identity, flags: int, stack: ExitStack) -> int:
    """Open a name, until the stack closes. Raises SafetyError if it is not the expected device or file.

    Checked before it is opened, because opening a FIFO or a tape has side effects, and again afterwards, because
    another drive may get its number in between.
    """
    try:
        name = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            _compare(path, Identity.of(os.fstat(name)), expected)
            descriptor = open_exclusively(f"/proc/self/fd/{name}", flags)
        finally:
            os.close(name)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise held_by_others(path) from None
        raise BlkreelError(f"{path} cannot be opened: {error.strerror}", "list drives with: blkreel drives") from None
    stack.callback(os.close, descriptor)
    _compare(path, Identity.of(os.fstat(descriptor)), expected)
    return descriptor


def open_exclusively(path: Path | str, flags: int = os.O_RDONLY | os.O_EXCL) -> int:
    """Open it, and wait a limited time for a process that has just exited to close it. Raises OSError."""
    deadline = time.monotonic() + _RELEASE_WAIT_S
    while True:
        try:
            return os.open(path, flags | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


def held_by_others(node: Path | str) -> SafetyError:
    return SafetyError(f"{node} is held exclusively by another program or in another mount namespace",
                       f"find it with: lsof {node}")


def _compare(path: Path, identity: Identity, expected: Identity) -> None:
    if identity != expected or identity == Identity():
        raise SafetyError(f"{path} was replaced after it was checked: it was {expected}, and is {identity}",
                          f"see what it is now: ls -lL {path}; then run the same command again")


def _lock(descriptor: int, node: Path) -> None:
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise SafetyError(f"{node} is locked by another program",
                                  f"wait until it ends; find it with: lsof {node}") from None
        time.sleep(0.05)
