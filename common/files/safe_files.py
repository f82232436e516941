"""Create, rename, chown, lock and remove files without following symbolic links of other users.

Root may work in directories that others can write to. A link there, in place of the output, a temporary file or a
directory, must not make it write, chown or remove a file elsewhere. So each name is resolved below the descriptor of
its directory, and files are created with O_EXCL or opened with O_NOFOLLOW.
"""

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from fnmatch import fnmatchcase
from io import FileIO
from pathlib import Path
from typing import IO, Any

from blkreel.common.errors import BlkreelError, OutputExists, SafetyError, UsageError
from blkreel.common.printable import storable
from blkreel.common.system import closing_descriptor

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
StrPath = str | os.PathLike[str]
_MAX_LINKS = 40  # the limit of the kernel
_ANY_NAME = re.compile(r"[^/\0\ud800-\udfff]+")
# Pattern of a name: None for a file, the layout of its content for a directory. The first match counts.
Layout = Mapping[str, "Layout | None"]


def open_directory(path: StrPath, *, create: bool = False) -> int:
    """A descriptor (O_PATH) of a directory. create: create it and its parents if missing.

    Root follows a symbolic link only if the link and its directory belong to root or to the user who called sudo.
    Raises SafetyError for any other link, OSError as open(2).
    """
    left = _parts(path)
    at = os.open("/" if os.fspath(path).startswith("/") else ".", _DIRECTORY)
    links = 0
    try:
        while left:
            name = left.pop(0)
            try:
                below = _open_below(at, name, create)
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                target = _link_target(at, name, path)
                links += 1
                if links > _MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
                left = _parts(target) + left
                below = os.open("/", _DIRECTORY) if target.startswith("/") else os.dup(at)
            os.close(at)
            at = below
    except BaseException:
        os.close(at)
        raise
    return at


@contextmanager
def directory_at(path: StrPath, *, create: bool = False) -> Iterator[int]:
    """open_directory(), closed at the end of the block."""
    with closing_descriptor(open_directory(path, create=create)) as directory:
        yield directory


def _parts(path: StrPath) -> list[str]:
    return [part for part in os.fspath(path).split("/") if part not in ("", ".")]


def _open_below(at: int, name: str, create: bool) -> int:
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=at)
        _give_to_caller(at, name)
    return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)


def _give_to_caller(at: int, name: str) -> None:
    """Give a new directory to the caller of sudo, if nobody else can put another one in its place meanwhile."""
    owner, around = caller_of_sudo(), os.fstat(at)
    if owner is not None and around.st_uid == owner[0] and not around.st_mode & 0o022:
        os.chown(name, *owner, dir_fd=at, follow_symlinks=False)


def refuse_missing_directory(path: StrPath) -> None:
    """Raise BlkreelError if the directory of an output does not exist and cannot be made. Makes nothing."""
    directory = Path(path).parent
    while not os.path.lexists(directory) and directory != directory.parent:
        directory = directory.parent
    if not directory.is_dir():
        raise BlkreelError(f"{directory} is not a directory", "name another output")
    with directory_at(directory):
        pass


def refuse_special(path: StrPath) -> None:
    """Raise UsageError for an output that is a directory, a device, a pipe, a socket or a link to one."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return
    kinds = ((stat.S_ISDIR, "a directory"), (stat.S_ISCHR, "a character device"), (stat.S_ISBLK, "a block device"),
             (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    for is_kind, kind in kinds:
        if is_kind(mode):
            raise UsageError(f"{path} is {kind}, not a file that can be replaced", "name another output")


def _link_target(at: int, name: str, path: StrPath) -> str:
    """The target of a link. Raises SafetyError if root must not follow it, NotADirectoryError if it is not a link."""
    with closing_descriptor(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)) as link:
        status, around = os.fstat(link), os.fstat(at)
        if not stat.S_ISLNK(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        # In a directory without the sticky bit, others with write permission can rename a link of root.
        movable = around.st_mode & 0o022 and not around.st_mode & stat.S_ISVTX
        if os.geteuid() == 0 and (movable or not {status.st_uid, around.st_uid} <= _trusted_users()):
            raise SafetyError(f"{path}: root does not follow the symbolic link {name!r}, which user {status.st_uid} or "
                              "others can change", f"check its target, and name that instead: readlink -f {path}")
        return os.readlink("", dir_fd=link)


def _trusted_users() -> set[int]:
    caller = os.environ.get("SUDO_UID", "")
    return {0, os.geteuid(), *([int(caller)] if caller.isdecimal() else [])}


def open_own(path: StrPath, flags: int) -> int:
    """Open a file of blkreel. Raises SafetyError for a symbolic link, a file with several links or no regular file."""
    path = Path(path)
    with directory_at(path.parent) as directory:
        try:
            # Without O_NONBLOCK, opening a FIFO would block.
            file = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=directory)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise _no_plain_file(path) from None
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(file)
        raise _no_plain_file(path)
    return file


def _no_plain_file(path: Path) -> SafetyError:
    return SafetyError(f"{path} is a link, or not a regular file", f"check it, and remove it: ls -l {path}")


def file_name(value: object, pattern: re.Pattern[str] = _ANY_NAME) -> str:
    """A name that a file of others gives, as the name of a file in a directory that the caller chose.

    Every name from a file that becomes part of a path goes through this. Raises ValueError for anything but a name of
    the pattern that leads nowhere else.
    """
    if not isinstance(value, str) or value in (".", "..") or "/" in value or not pattern.fullmatch(value):
        raise ValueError(f"{value!r} is not a valid name of a file")
    return value


def read_plain(path: StrPath) -> bytes:
    """The content of a file of a directory that others filled: no link leads elsewhere. Raises OSError."""
    # Without O_NONBLOCK, opening a FIFO would block.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        return file.read()


def create(path: StrPath) -> FileIO:
    """Create a file for unbuffered writing. An existing file of the name is removed, not written to."""
    path = Path(path)
    with directory_at(path.parent) as directory:
        with suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=directory)
        return os.fdopen(_create(directory, path.name), "wb", buffering=0)


def _create(directory: int, name: str) -> int:
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=directory)


def make_directory(path: StrPath, mode: int = 0o777) -> None:
    """mkdir(2), with missing parents. Raises OSError; FileExistsError also for a link."""
    path = Path(path)
    with directory_at(path.parent, create=True) as directory:
        os.mkdir(path.name, mode, dir_fd=directory)


def rename(path: StrPath, name: str) -> None:
    """Rename a file or directory within its directory."""
    path = Path(path)
    with directory_at(path.parent) as directory:
        os.rename(path.name, name, src_dir_fd=directory, dst_dir_fd=directory)


def unlink(path: StrPath) -> None:
    """Remove a file if it exists."""
    path = Path(path)
    with suppress(FileNotFoundError), directory_at(path.parent) as directory:
        try:
            os.unlink(path.name, dir_fd=directory)
        except OSError as error:
            # On a read-only file system also for a name that does not exist.
            if error.errno != errno.EROFS or _exists(directory, path.name):
                raise


def remove_directory(path: StrPath, layout: Layout) -> bool:
    """Remove the files of `layout` below `path`, and the directory if it is then empty. Returns whether it was removed.

    Files go in the order of `layout`, so that a kill leaves those at its end. Links and their targets stay.
    """
    path = Path(path)
    with directory_at(path.parent) as directory:
        return _remove_below(directory, path.name, layout)


def clear_directory(path: StrPath, layout: Layout) -> None:
    """Remove the files of `layout` below `path`. Other files and the directory stay."""
    with directory_at(path) as directory:
        _clear(directory, layout)


def names_in(directory: int) -> list[str]:
    """The names in the directory of a descriptor."""
    with _readable(directory) as opened, os.scandir(opened) as entries:
        return [entry.name for entry in entries]


def _readable(directory: int) -> AbstractContextManager[int]:
    """The directory of an O_PATH descriptor, opened to read it. Raises OSError."""
    return closing_descriptor(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory))


def _clear(directory: int, layout: Layout) -> None:
    names = names_in(directory)
    ordered = [(name, below) for pattern, below in layout.items() for name in names if fnmatchcase(name, pattern)]
    for name, below in ordered:
        if below is not None:
            _remove_below(directory, name, below)
        else:
            with suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=directory)


def _remove_below(directory: int, name: str, layout: Layout) -> bool:
    try:
        below = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        return False
    with closing_descriptor(below):
        _clear(below, layout)
    try:
        os.rmdir(name, dir_fd=directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    return True


class NewFile:
    """A file that gets its name when it is complete. Write its content to `file`, then call publish().

    Until then it is in `temporary`, by default a hidden file of a random name beside it. owner: (user, group). sync:
    survive a power cut, not only a kill. Missing directories are made. The end of the block removes a file that was not
    published. Raises OSError, and SafetyError for a directory behind a link of another user.
    """

    def __init__(self, path: StrPath, *, force: bool = False, owner: tuple[int, int] | None = None, sync: bool = True,
                 temporary: Path | None = None):
        refuse_special(path)
        self.path = Path(path)
        self._force, self._owner, self._sync = force, owner, sync
        self.temporary_name = temporary.name if temporary else temporary_name(self.path.name)
        self._directory = open_directory(self.path.parent, create=True)
        self._from = -1
        try:
            self._from = open_directory(temporary.parent) if temporary else os.dup(self._directory)
            if temporary:
                with suppress(FileNotFoundError):
                    os.unlink(self.temporary_name, dir_fd=self._from)
            self.file = os.fdopen(_create(self._from, self.temporary_name), "wb")
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> "NewFile":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.abandon()

    def publish(self) -> None:
        """Give the file its name. Raises OutputExists if a file of that name exists now, without `force`."""
        self.file.flush()
        if self._owner is not None:
            with suppress(OSError):  # a file system without owners
                os.fchown(self.file.fileno(), *self._owner)
        if self._sync:
            os.fsync(self.file.fileno())
        self.file.close()
        self._give_name()
        if self._sync:
            self._sync_directory()
        self._close()

    def abandon(self) -> None:
        """Remove the file. Does nothing after publish()."""
        if self._directory < 0:
            return
        with suppress(OSError):
            os.unlink(self.temporary_name, dir_fd=self._from)
        with suppress(OSError):  # a full disk has been reported already
            self.file.close()
        self._close()

    def _give_name(self) -> None:
        if self._force:
            os.rename(self.temporary_name, self.path.name, src_dir_fd=self._from, dst_dir_fd=self._directory)
            return
        try:
            os.link(self.temporary_name, self.path.name, src_dir_fd=self._from, dst_dir_fd=self._directory,
                    follow_symlinks=False)
        except FileExistsError:
            raise OutputExists(self.path) from None
        except OSError as error:
            # No hard links: exFAT, some network mounts.
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                raise
            if _exists(self._directory, self.path.name):
                raise OutputExists(self.path) from None
            os.rename(self.temporary_name, self.path.name, src_dir_fd=self._from, dst_dir_fd=self._directory)
            return
        os.unlink(self.temporary_name, dir_fd=self._from)

    def _sync_directory(self) -> None:
        with suppress(OSError), _readable(self._directory) as directory:  # no permission to read the directory
            os.fsync(directory)

    def _close(self) -> None:
        for descriptor in (self._directory, self._from):
            if descriptor >= 0:
                os.close(descriptor)
        self._directory = self._from = -1


def write_file(path: StrPath, content: bytes | str, *, mode: int | None = None, **options: Any) -> None:
    """Write a file that gets its name when it is complete. mode: permissions. options: see NewFile."""
    with NewFile(path, **options) as new:
        new.file.write(storable(content).encode() if isinstance(content, str) else content)
        if mode is not None:
            os.fchmod(new.file.fileno(), mode)
        new.publish()


def lock_file(file: IO[bytes] | int, patience_s: float = 0.0) -> bool:
    """Whether the lock was taken. It lasts as long as any process that inherited the file keeps it open."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                return True  # a file system without locks
            if time.monotonic() >= deadline:
                return False
        time.sleep(0.05)


def temporary_name(name: str) -> str:
    """A hidden name that other users cannot predict."""
    return f".{name}.{secrets.token_hex(6)}.tmp"


def caller_of_sudo() -> tuple[int, int] | None:
    """(user, group) of the caller of sudo, who owns the outputs; None without sudo."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    return (int(user), int(group)) if os.geteuid() == 0 and user.isdecimal() and group.isdecimal() else None


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
