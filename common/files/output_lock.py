"""Locks on outputs: no command replaces or removes what another process is writing.

A lock is that of flock(2) on what is written: the hidden file that gets the output's name at the end, the rows of a
spool, or the directory of a run, a test, a catalog or a site. It belongs to the open file, so it ends with the last
process that has it open, also after a kill, and no file must be removed to release it.
"""

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from blkreel.common.errors import BlkreelError
from blkreel.common.printable import storable
from blkreel.common.system import closing_descriptor, read_kernel_text

from .safe_files import NewFile, StrPath, directory_at, lock_file, names_in

_LOCKS = Path("/proc/locks")
_TEST_S = 1.0  # a test by another command holds the lock for microseconds


class OutputInUse(BlkreelError):
    """Another process is writing the output: --force does not replace it either.

    pid: of that process; None if it is in another PID namespace, or has ended and left the lock to its helper.
    """

    code = "output_in_use"

    def __init__(self, path: object, descriptor: int):
        self.pid = _holder(descriptor)
        by = f"process {self.pid}" if self.pid else "another process"
        stop = f", or stop it: kill -INT {self.pid}" if self.pid else ""
        super().__init__(f"{path} is being written by {by}", f"wait until it ends{stop}, or name another output")


def spool_of(output: Path) -> Path:
    """The directory in which the rows of an output wait until it is complete (traces/spool/spool.py)."""
    return output.with_name(f".{output.name}.spool")


def refuse_in_use(path: StrPath, own: str = "") -> None:
    """Raise OutputInUse if another process is writing this output. own: name of a hidden file of this process."""
    path = Path(path)
    is_hidden = re.compile(rf"\.{re.escape(path.name)}\.([0-9a-f]{{12}}\.tmp|spool)").fullmatch
    with suppress(OSError), directory_at(path.parent) as parent:  # missing or not readable: creating the output says so
        names = [name for name in names_in(parent) if is_hidden(name) and name != own]
        for name in (path.name, *names):
            _refuse_locked(path, parent, name)


def _refuse_locked(path: Path, at: int, name: str) -> None:
    """The lock of a file or directory; of a spool also those of its files."""
    with ExitStack() as stack:
        try:
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        except OSError:
            return
        stack.callback(os.close, opened)
        mode = os.fstat(opened).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            return
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputInUse(path, opened) from None
        except OSError:
            return  # a file system without locks
        if stat.S_ISDIR(mode) and name.endswith(".spool"):
            for below in names_in(opened):
                _refuse_locked(path, opened, below)


def take_lock(path: StrPath, descriptor: int, patience_s: float = 0.0) -> None:
    """Lock what is written of an output until the descriptor is closed. Raises OutputInUse."""
    if not lock_file(descriptor, max(_TEST_S, patience_s)):
        raise OutputInUse(path, descriptor)


@contextmanager
def directory_locked(path: StrPath, patience_s: float = 0.0) -> Iterator[None]:
    """Exclude other writers of a directory during the block. Raises OutputInUse after `patience_s`."""
    with closing_descriptor(lock_directory(path, patience_s)):
        yield


def lock_directory(path: StrPath, patience_s: float = 0.0) -> int:
    """The descriptor to close at the end of writing. Raises OutputInUse after `patience_s`, OSError as open(2)."""
    with directory_at(path) as directory:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        take_lock(path, descriptor, patience_s)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def new_output(path: StrPath, *, force: bool = False, owner: tuple[int, int] | None = None) -> NewFile:
    """A NewFile that no other command can write meanwhile. Raises OutputInUse, and as NewFile."""
    new = NewFile(path, force=force, owner=owner)
    try:
        # Locked before the others are looked for: of two commands at once, at least one finds the other.
        take_lock(path, new.file.fileno())
        refuse_in_use(path, new.temporary_name)
    except BaseException:
        new.abandon()
        raise
    return new


def write_output(path: StrPath, content: bytes | str, *, force: bool = False,
                 owner: tuple[int, int] | None = None) -> None:
    """Write a file that gets its name when it is complete. Raises as new_output(), and OutputExists."""
    with new_output(path, force=force, owner=owner) as new:
        new.file.write(storable(content).encode() if isinstance(content, str) else content)
        new.publish()


def _holder(descriptor: int) -> int | None:
    """The process that took the lock, if it still runs. By inode: on btrfs and overlayfs stat(2) has another device."""
    inode = os.fstat(descriptor).st_ino
    pids = set()
    with suppress(OSError):
        for line in read_kernel_text(_LOCKS).splitlines():
            # 1: FLOCK  ADVISORY  WRITE 708 fe:01:1234 0 EOF
            fields = line.split()
            if "->" not in line and fields[1] == "FLOCK" and fields[3] == "WRITE" and fields[5].endswith(f":{inode}"):
                pids.add(int(fields[4]))
    running = [pid for pid in pids if pid > 0 and Path(f"/proc/{pid}").exists()]
    return running[0] if len(running) == 1 else None
