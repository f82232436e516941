"""Whether a target may be replayed on. Every check passes before the first byte is written.

A use of any partition bars the whole drive, because its I/O would disturb the measurement even if its data were
safe.
"""

import errno
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from blkreel.common.command_line import running_words
from blkreel.common.device import Drive
from blkreel.common.errors import BlkreelError, SafetyError, UsageError
from blkreel.common.files.safe_files import write_file
from blkreel.common.installation import state_directory
from blkreel.common.system import text_in
from blkreel.common.units import format_bytes

from . import late_writes
from .claim import held_by_others, is_held, open_exclusively
from .file_identity import Identity, identity_of
from .target import Identity as TargetIdentity
from .target import Target
from .usage import Kernel, backing_of, refuse_opened, refuse_used, target_of, uses_of

_MARK = "user.blkreel.drive"  # an extended attribute
_PARQUET = b"PAR1"
_RESULT_FILES = ("records.parquet", "test.json", "catalog.json", "repetitions.json")
_SAMPLE_BYTES = 1 << 20

_accepted: set[TargetIdentity] = set()  # by this process: its first run may fill the holes before the next check


def check(target: Target, *, writes: bool, destroy: str | None, kernel: Kernel | None = None,
          other_words: Sequence[str] = ()) -> list[str]:
    """Raise SafetyError unless the target is unused and, if it is written, its loss was confirmed.

    destroy: the serial that the user gave. other_words: confirmations of other drives, for the remedy. Returns warnings
    about checks that were impossible.
    """
    if target.is_nil:
        return []
    if not is_held(target):
        late_writes.refuse(target)
    kernel = kernel or Kernel()
    refuse_used(target, uses_of(target, kernel))
    unseen = refuse_opened(target, kernel)
    _check_exclusive(target)
    warnings = []
    if unseen and _is_first_of_boot():
        rights = "have capabilities that this one lacks" if os.geteuid() == 0 else "are of other users"
        remedy = "" if os.geteuid() == 0 else f"; run as root: sudo {shlex.join(running_words())}"
        processes = "1 process" if unseen == 1 else f"{unseen} processes"
        warnings.append(f"open files of {processes} were not checked for {target.path}: they {rights}{remedy}")
    if not writes:
        return warnings
    if target.drive.read_only:
        writable = {"file": "let it be written (chmod, mount -o remount,rw), or name another image",
                    "loop": f"attach its image without losetup -r, or blockdev --setrw {target.path}"}
        raise SafetyError(f"{target.path} is read-only, and this writes to it",
                          f"{writable.get(target.drive.kind, f'blockdev --setrw {target.path}')}, "
                          "or replay a trace of reads with --no-prefill")
    is_file = target.drive.kind == "file"
    if is_file:
        _refuse_output(target)
    owner = endangered_drive(target, kernel)
    if owner is None and destroy is None and is_file and _has_data(target):
        raise SafetyError(f"{target.path} has data, and this overwrites it: it has no holes, as truncate makes them, "
                          "and blkreel has not used it as a drive",
                          f"to confirm: {_confirmed_command(*other_words, str(target.path))}")
    if owner is None and destroy is not None and not _names(destroy, target):
        raise SafetyError(f"--destroy {destroy!r} does not name {target.path}",
                          f"leave it out, or give the path: {_confirmed_command(*other_words, str(target.path))}")
    if is_file:
        _accept(target)
    if owner and destroy != confirmation(owner):
        wrong = f"--destroy {destroy!r} does not name {owner.path}" if destroy else f"this overwrites {owner.path}"
        about = ", ".join(part for part in (owner.model, format_bytes(owner.size_bytes)) if part)
        raise SafetyError(f"{wrong} ({about}) and all data on it would be lost",
                          f"to confirm: {_confirmed_command(*other_words, confirmation(owner))}")
    return warnings


def _is_first_of_boot() -> bool:
    """Whether this user was not warned since boot. A warning before each replay would not be read."""
    path = state_directory() / "processes-not-checked"
    boot_id = text_in(Path("/proc/sys/kernel/random/boot_id"))
    if text_in(path) == boot_id:
        return False
    with suppress(OSError, SafetyError):
        write_file(path, boot_id, force=True)
    return True


def check_all(targets: list[tuple[Target, bool]], *, destroy: Sequence[str], kernel: Kernel | None = None) -> list[str]:
    """check() for each target and whether it is written to; of `destroy` one must name it. Nothing is written yet."""
    kernel = kernel or Kernel()
    warnings = []
    matched: set[str] = set()
    for target, writes in targets:
        owner = endangered_drive(target, kernel) if writes else None
        named = confirmation(owner) if owner else None
        if writes and owner is None:
            named = next((word for word in destroy if _names(word, target)), None)
        own_word = named if named in destroy else (destroy[0] if len(targets) == 1 and destroy else None)
        other_words = [word for word in destroy if word != named] if len(targets) > 1 else []
        matched |= {word for word in destroy if word == named}
        warnings += check(target, writes=writes, destroy=own_word, kernel=kernel, other_words=other_words)
    unmatched = [word for word in destroy if word not in matched]
    if unmatched and any(writes for _, writes in targets):
        raise SafetyError(f"--destroy {unmatched[0]!r} names no drive that this overwrites", "leave it out")
    return warnings


def forecast(checked: Callable[[], list[str]]) -> list[str]:
    """Of a dry run, which writes nothing: the warnings of a check, or its refusal as one."""
    try:
        return checked()
    except BlkreelError as error:
        return [f"without --dry-run this is refused: {error}"]


def check_distinct(targets: dict[int, Target]) -> None:
    """Raise UsageError if two devices of a trace are mapped to one drive: each would disturb the other."""
    by_identity: dict[Identity | str, Target] = {}
    for target in targets.values():
        # An image and a loop device over it are one drive, and so are partitions of one.
        identity = backing_of(target, Kernel()) or identity_of(target.drive.path) or target.drive.path
        if identity in by_identity and not target.is_nil:
            raise UsageError(f"{target.path} and {by_identity[identity].path} are one drive",
                             "name a drive of its own for each device: --on 0=DEVICE --on 1=DEVICE")
        by_identity[identity] = target


def endangered_drive(target: Target, kernel: Kernel) -> Drive | None:
    """The drive whose data could be lost; None for a file or a loop device over one."""
    if target.drive.kind in ("file", "nil"):
        return None
    if target.drive.kind != "loop":
        return target.drive
    backing = backing_of(target, kernel)
    below = target_of(backing, kernel) if backing else None
    return endangered_drive(below, kernel) if below else None


def _names(word: str, target: Target) -> bool:
    """Whether `--destroy` names a file or a loop device, which have no serial: by its path or the name of its node."""
    identity = identity_of(word)
    return word == confirmation(target.drive) or (identity is not None and identity == identity_of(target.path))


def confirmation(drive: Drive) -> str:
    """The confirmation that destroys a drive: its serial, or NAME:BYTES of a volume and a drive that has none."""
    if drive.is_volume:
        return f"{drive.model or drive.name}:{drive.size_bytes}"
    return drive.serial or f"{drive.name}:{drive.size_bytes}"


def _confirmed_command(*words: str) -> str:
    """The command line with the required `--destroy`, and not a dry run."""
    arguments, skip = [], False
    for word in running_words():
        if word == "--dry-run":
            continue
        if skip or word.startswith("--destroy"):
            skip = word == "--destroy"
            continue
        arguments.append(word)
    return shlex.join([*arguments, *(part for word in words for part in ("--destroy", word))])


def _check_exclusive(target: Target) -> None:
    """Ask the kernel: mounts of other namespaces show up nowhere else."""
    node = target.drive.path
    if target.block is None or is_held(target):
        return
    try:
        os.close(open_exclusively(node))
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise held_by_others(node) from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise BlkreelError(f"{node} cannot be opened: {error.strerror}",
                               f"run as root: sudo {shlex.join(running_words())}") from None
        raise BlkreelError(f"{node} cannot be opened: {error.strerror}", "list drives with: blkreel drives") from None


def _refuse_output(target: Target) -> None:
    """Raise SafetyError for a trace, a run or another output of blkreel, whatever was confirmed."""
    with open(target.path, "rb") as file:
        is_output = file.read(len(_PARQUET)) == _PARQUET
    if not is_output:
        directory = target.path.parent
        is_output = directory.name.endswith(".spool") or any((directory / name).exists() for name in _RESULT_FILES)
    if is_output:
        raise SafetyError(f"{target.path} is a trace or another output of blkreel, and this overwrites it",
                          f"name a drive, or a new file: truncate -s 8GiB {target.path.parent / 'scratch.img'}")


def _has_data(target: Target) -> bool:
    """Whether it may hold data of the user: no hole, not only zeros, and never used as a drive by blkreel.

    A file made by `truncate` has holes, or reads as zeros. A file that blkreel has used as a drive is marked, because
    a preparation fills its holes.
    """
    if target.identity in _accepted:
        return False
    with suppress(OSError):
        os.getxattr(target.path, _MARK)
        return False
    with open(target.path, "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if os.lseek(file.fileno(), 0, os.SEEK_HOLE) < size_bytes:
            return False
        for offset in (0, max(0, size_bytes - _SAMPLE_BYTES)):
            file.seek(offset)
            if any(file.read(_SAMPLE_BYTES)):
                return True
    return False


def _accept(target: Target) -> None:
    """The file may be overwritten from now on."""
    _accepted.add(target.identity)
    with suppress(OSError):  # a file system without such attributes asks again when the file has no hole left
        os.setxattr(target.path, _MARK, b"1")
