"""The claim on a target: opened once, compared with what was checked, held from the first I/O to the last.

A name may refer to something else at any moment: a link to a drive replaces a file, a loop device gets another image.
So nothing after the checks uses the name. The helper, the read-back and each flush get the claimed descriptor, and
open it again through /proc/self/fd if they need other flags.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from blkreel.common.errors import BlkreelError, SafetyError
from blkreel.common.files.safe_files import lock_file
from blkreel.common.system import closing_descriptor

from . import late_writes
from .file_identity import identity_of
from .target import Identity, Target
from .usage import Kernel, backing_of, refuse_opened, refuse_used, uses_of

_LOCK_WAIT_S = 10.0
_RELEASE_WAIT_S = 3.0
_POLL_S = 0.01
_REPORT_EVERY_S = 0.5


@dataclass(frozen=True)
class Claim:
    """descriptor: of the target, read-only. exclusive: of the whole drive, or of the file.

    The claim and the lock belong to the open file of `exclusive`. A helper that inherits it excludes others until it
    ends, and the kernel until the last I/O of the helper is done, even if both processes are killed.
    """

    descriptor: int
    exclusive: int
    target: Target

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that a helper must inherit."""
        return tuple({self.descriptor, self.exclusive})

    def reopen(self, flags: int) -> int:
        """Another descriptor of the same device or file, with other flags."""
        return os.open(f"/proc/self/fd/{self.descriptor}", flags | os.O_CLOEXEC)

    @property
    def is_released(self) -> bool:
        """Whether the kernel has closed the helper's files, after the last I/O."""
        return not late_writes.is_locked(self.descriptor)


def wait_released(claims: Sequence[Claim], report: Callable[[Sequence[Claim]], None] | None) -> None:
    """Wait until the kernel has closed the helper's files.

    report: called now and then with the claims that are not released, while writes may be in flight. None: all writes
    are done. Then the wait is limited: a process that used io_uring ends some milliseconds before its files are closed.
    udev then probes the drive, which must not disturb the next step, and `losetup -d` or `dmsetup remove` fails.
    """
    begun = reported = time.monotonic()
    while waiting := [claim for claim in claims if not claim.is_released]:
        now = time.monotonic()
        if report is None and now - begun > _RELEASE_WAIT_S:
            return
        if report and now - reported > _REPORT_EVERY_S:
            report(waiting)
            reported = now
        time.sleep(_POLL_S)


_claims: dict[Identity, Claim] = {}


def is_held(target: Target) -> bool:
    """Whether this process has the claim on it."""
    return target.identity in _claims


def held_targets() -> list[Target]:
    """The targets that this process has claimed."""
    return [claim.target for claim in _claims.values()]


@contextmanager
def held(target: Target) -> Iterator[Claim | None]:
    """Claim the target while the block runs: mounts, volumes, partitioning tools and a second blkreel fail or wait.

    udev and partitioning tools probe a drive whenever a writer closes it, in the middle of the next step, unless they
    find its node locked (flock, as systemd documents for block devices). A claim that this process already has is used
    again: a test has one from its first step to its last. None for the nil target.

    The file under a loop device is locked too, if its path still leads there. The claimed drive is checked for other
    users again: of two replays that reach one image by different names at once, at least one finds the other's open
    file or loop device.

    Raises SafetyError if the name refers to something else than was checked, if others hold it, or if writes of a
    command that has ended are in flight.
    """
    if target.is_nil or is_held(target):
        yield _claims.get(target.identity)
        return
    late_writes.refuse(target)
    with ExitStack() as stack:
        claim = _claim(target, stack)
        _refuse_locked(claim)
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
        return Claim(exclusive, exclusive, target)
    node = Path(target.drive.path)
    whole = replace(target.identity, node=os.makedev(target.drive.major, target.drive.minor))
    # The whole drive also for a partition: its other partitions must not be mounted during the run.
    exclusive = _opened(node, whole, os.O_RDONLY | os.O_EXCL, stack)
    _lock(exclusive, node)
    descriptor = _opened(target.path, target.identity, os.O_RDONLY, stack) if target.partition else exclusive
    return Claim(descriptor, exclusive, target)


def _refuse_locked(claim: Claim) -> None:
    """Of a kernel that did not register the descriptors of the claim, the lock is left after the claim has ended."""
    wait_released([claim], None)
    if not claim.is_released:
        raise SafetyError(f"I/O of an earlier command is in flight on {claim.target.path}",
                          "wait until it is done, then run the same command again")


def _lock_backing(target: Target, stack: ExitStack) -> None:
    path, backing = target.drive.backing_file, backing_of(target, Kernel())
    if backing and identity_of(path) == backing:
        descriptor = stack.enter_context(closing_descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC)))
        if identity_of(f"/proc/self/fd/{descriptor}") == backing:
            _lock(descriptor, Path(path))


def _opened(path: Path, expected: Identity, flags: int, stack: ExitStack) -> int:
    """Open a name, until the stack closes. Raises SafetyError if it is not the expected device or file.

    Checked before it is opened, because opening a FIFO or a tape has side effects, and again afterwards, because
    another drive may get its number in between.
    """
    try:
        with closing_descriptor(os.open(path, os.O_PATH | os.O_CLOEXEC)) as name:
            _compare(path, Identity.of(os.fstat(name)), expected)
            descriptor = open_exclusively(f"/proc/self/fd/{name}", flags)
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


def exclusive_use(node: Path | str) -> str | None:
    """The use by a mount of another namespace, or by a program or file system such as ZFS that nothing else shows.

    None without one, or without the permission to open the drive.
    """
    try:
        os.close(os.open(node, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return held_by_others(node).message
    return None


def held_by_others(node: Path | str) -> SafetyError:
    return SafetyError(f"{node} is held exclusively by another program or in another mount namespace",
                       f"find it with: lsof {node}")


def _compare(path: Path, identity: Identity, expected: Identity) -> None:
    if identity != expected or identity == Identity():
        raise SafetyError(f"{path} was replaced after it was checked: it was {expected}, and is {identity}",
                          f"see what it is now: ls -lL {path}; then run the same command again")


def _lock(descriptor: int, node: Path) -> None:
    if not lock_file(descriptor, _LOCK_WAIT_S):
        raise SafetyError(f"{node} is locked by another program", f"wait until it ends; find it with: lsof {node}")
