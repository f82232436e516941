"""Whether a target may be replayed on. Every check passes before the first byte is written.

A drive counts as one: whatever uses any partition of it bars the whole of it, because its I/O would be
in the way of the measurement even where the data would not be.
"""

import errno
import fcntl
import os
import shlex
import time
from contextlib import contextmanager
from pathlib import Path

from blkreel.traces.device import Drive
from blkreel.traces.errors import BlkreelError, SafetyError, UsageError
from blkreel.traces.units import format_bytes

from .target import Target, find_target, is_block_device
from .usage import Kernel, uses_of

_LOCK_WAIT_S = 10.0
_RELEASE_WAIT_S = 3.0


def check(target: Target, *, writes: bool, destroy: str | None, argv: list[str], kernel: Kernel | None = None,
          kept=()) -> None:
    """Raise SafetyError unless the target is unused and, where it `writes`, its loss was confirmed.

    destroy: what the user typed as the drive's serial. argv: the command as it was called, for the remedy, which
    keeps what was typed for other drives.
    """
    if target.is_nil:
        return
    kernel = kernel or Kernel()
    uses = uses_of(target, kernel)
    if uses:
        more = f" (and {len(uses) - 1} more uses)" if len(uses) > 1 else ""
        raise SafetyError(f"{target.path} is in use: {uses[0]}{more}", f"if it can go: {uses[0].remedy}")
    _check_exclusive(target, argv)
    if not writes:
        return
    if target.drive.read_only:
        raise SafetyError(f"{target.path} is read-only, and this writes to it",
                          f"blockdev --setrw {target.path}, or a trace of reads with --no-prefill")
    owner = endangered_drive(target, kernel)
    if owner and destroy != confirmation(owner):
        wrong = f"--destroy {destroy!r} does not name {owner.path}" if destroy else f"this overwrites {owner.path}"
        about = ", ".join(part for part in (owner.model, format_bytes(owner.size_bytes)) if part)
        raise SafetyError(f"{wrong} ({about}) and all data on it would be lost",
                          f"if that is meant: {confirmed_command(argv, *kept, confirmation(owner))}")


def check_all(targets: list[tuple[Target, bool]], *, destroy, argv: list[str], kernel: Kernel | None = None) -> None:
    """check() for each target and whether it is written to; of `destroy` one must name it. Nothing is written yet."""
    kernel = kernel or Kernel()
    for target, writes in targets:
        owner = endangered_drive(target, kernel) if writes else None
        named = confirmation(owner) if owner else None
        given = named if named in destroy else (destroy[0] if len(targets) == 1 and destroy else None)
        others = [word for word in destroy if word != named] if len(targets) > 1 else []
        check(target, writes=writes, destroy=given, argv=argv, kernel=kernel, kept=others)


def check_distinct(targets: dict[int, Target]) -> None:
    """Raise UsageError where one drive is to stand for two devices of a trace: each would measure the other."""
    seen = {}
    for target in targets.values():
        identity = _identity(target.drive)
        if identity in seen and not target.is_nil:
            raise UsageError(f"{target.path} and {seen[identity].path} are one drive",
                             "name a drive of its own for each device: --on 0=DEVICE --on 1=DEVICE")
        seen[identity] = target


def _identity(drive: Drive):
    """What two names of one drive have in common: for an image its file, whatever loop device it is attached to."""
    try:
        status = Path(drive.backing_file if drive.kind == "loop" else drive.path).stat()
    except OSError:
        return drive.path
    return status.st_dev, status.st_ino, status.st_rdev


def endangered_drive(target: Target, kernel: Kernel) -> Drive | None:
    """The drive whose data is at stake; None for a file or a loop device over one, named as what they are."""
    if target.drive.kind in ("file", "nil"):
        return None
    if target.drive.kind != "loop":
        return target.drive
    if is_block_device(target.drive.backing_file):
        return endangered_drive(find_target(target.drive.backing_file, kernel.sys), kernel)
    return None


def confirmation(drive: Drive) -> str:
    """What must be typed to destroy a drive: its serial, or NAME:BYTES where it has none."""
    return drive.serial or f"{drive.name}:{drive.size_bytes}"


def confirmed_command(argv: list[str], *words: str) -> str:
    """The call, with `--destroy` as it has to be."""
    kept, skip = [], False
    for word in argv:
        if skip or word.startswith("--destroy"):
            skip = word == "--destroy"
            continue
        kept.append(word)
    return shlex.join([*kept, *(part for word in words for part in ("--destroy", word))])


def _check_exclusive(target, argv) -> None:
    """Ask the kernel: mounts of other namespaces and other programs show up nowhere else."""
    node = target.drive.path
    try:
        released = wait_released(target)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise BlkreelError(f"{node} cannot be opened: {error.strerror}",
                               f"run as root: sudo {shlex.join(argv)}") from None
        raise BlkreelError(f"{node} cannot be opened: {error.strerror}", "list drives with: blkreel drives") from None
    if not released:
        raise SafetyError(f"{node} is held exclusively by another program or in another mount namespace",
                          f"find it with: lsof {node}")


def wait_released(target: Target, wait_s: float = _RELEASE_WAIT_S) -> bool:
    """Whether nobody claims the drive, now or soon. Raises OSError where it cannot be opened at all.

    A process that used io_uring is gone some milliseconds before the kernel lets go of its files: the end of
    one step of ours would otherwise bar the next.
    """
    if target.block is None:
        return True
    deadline = time.monotonic() + wait_s
    while True:
        try:
            os.close(os.open(target.drive.path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
            return True
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)


_held_here: set[Path] = set()


@contextmanager
def held(target: Target):
    """Keep others off the drive while the block runs: udev, partitioning tools, a second blkreel.

    The former probe a drive whenever a writer closes it, in the middle of the next step, unless they find its
    node locked (flock, as systemd documents for block devices). Where this process holds it already, as a test does
    from its first step to its last, that is enough.
    """
    node = target.path if target.block is None else Path(target.drive.path)
    if target.is_nil or node in _held_here:
        yield
        return
    with open(node, "rb", buffering=0) as file:
        deadline = time.monotonic() + _LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SafetyError(f"{node} is locked by another program",
                                      f"wait until it ends; find it with: lsof {node}") from None
                time.sleep(0.05)
        _held_here.add(node)
        try:
            yield
        finally:
            _held_here.discard(node)
