"""Small files, mounts, programs and signals of the system. Names in /proc and /sys are bytes: read_kernel_text()."""

import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from .errors import BlkreelError

_SYSTEM_PROGRAMS = ("/usr/sbin", "/sbin")  # may not be on a user's path
# Only root can write here. A PATH that sudo or a service let through would give root another program.
ROOT_DIRECTORIES = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
MOUNTINFO = Path("/proc/self/mountinfo")
MOUNTS = Path("/proc/self/mounts")
CGROUPS = Path("/sys/fs/cgroup")


def read_kernel_text(path: Path | str) -> str:
    """The text without the newline at its end; a byte that is not UTF-8 is a surrogate (os.fsdecode). Raises OSError.

    Lines end with a newline only, and fields with a space: a name may have other white space of Unicode.
    """
    return os.fsdecode(Path(path).read_bytes()).removesuffix("\n")


def read_kernel_lines(path: Path | str) -> list[str]:
    """The lines of read_kernel_text(). Raises OSError."""
    text = read_kernel_text(path)
    return text.split("\n") if text else []


@contextmanager
def closing_descriptor(descriptor: int) -> Iterator[int]:
    """A file descriptor, closed at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def text_in(path: Path) -> str:
    """The text of a file; "" if it cannot be read."""
    try:
        return read_kernel_text(path).strip()
    except OSError:
        return ""


def integer_in(path: Path) -> int:
    """The number in a file; 0 if there is none, or it cannot be read."""
    text = text_in(path)
    return int(text) if text.isdigit() else 0


def user_directory(variable: str, below_home: str) -> Path:
    """A directory of the XDG specification. Without a home directory, as of a user ID that a container made up, /."""
    if directory := os.environ.get(variable):
        return Path(directory)
    try:
        return Path.home() / below_home
    except RuntimeError:
        return Path("/", below_home)


def find_program(name: str) -> str | None:
    """The path of a program; None if it is not installed. Root does not use PATH."""
    directories = ROOT_DIRECTORIES if os.geteuid() == 0 else (os.environ.get("PATH", ""), *_SYSTEM_PROGRAMS)
    return shutil.which(name, path=os.pathsep.join(directories))


def native_library(path: Path, prefix: str, signatures: Mapping[str, tuple[Any, Any]]) -> SimpleNamespace:
    """The functions PREFIX_NAME of a shared library by their NAME. signatures: result and arguments of each, as ctypes
    has them. Raises BlkreelError."""
    import ctypes

    try:
        library, functions = ctypes.CDLL(str(path)), SimpleNamespace()
    except OSError as error:
        raise BlkreelError(f"cannot load {path}: {error}", "build it: make install") from error
    for name, (result, arguments) in signatures.items():
        function = library[f"{prefix}_{name}"]
        function.restype, function.argtypes = result, arguments
        setattr(functions, name, function)
    return functions


def io_max(number: str, group: Path | None = None, root: Path = CGROUPS,
           own: Path = Path("/proc/self/cgroup")) -> dict[str, int]:
    """The limits of a drive (MAJOR:MINOR) in a control group: riops, wiops, rbps, wbps, as far as there are any.

    Of version 2 with those of the groups that it is in; of version 1, whose groups do not limit those in them.
    group: its directory; None for that of the process.
    """
    limits: dict[str, int] = {}
    if group is None:
        groups = _control_groups(own)
        if "blkio" in groups:
            limits = _blkio_limits(number, root / "blkio" / groups["blkio"])
        group = root / groups.get("", "")
    for directory in (group, *group.parents):
        for line in text_in(directory / "io.max").splitlines():
            device, *words = line.split()
            for key, _, value in (word.partition("=") for word in words):
                if device == number and value.isdigit():
                    limits[key] = min(limits.get(key, int(value)), int(value))
        if directory == root:
            break
    return limits


def _control_groups(own: Path) -> dict[str, str]:
    """Of /proc/PID/cgroup: the path in the hierarchy of each controller; version 2 is the controller ""."""
    fields = [line.split(":", 2) for line in text_in(own).splitlines()]
    return {controller: path.lstrip("/") for _, controllers, path in fields for controller in controllers.split(",")}


def _blkio_limits(number: str, group: Path) -> dict[str, int]:
    limits = {}
    for key, name in (("riops", "read_iops"), ("wiops", "write_iops"), ("rbps", "read_bps"), ("wbps", "write_bps")):
        for line in text_in(group / f"blkio.throttle.{name}_device").splitlines():
            device, value = line.split()
            if device == number:
                limits[key] = int(value)
    return limits


@dataclass(frozen=True)
class Mount:
    """device: MAJOR:MINOR. kind: of the file system, such as ext4. options: of the file system, in order; "" without a
    value."""

    number: str
    device: str
    point: str
    kind: str
    source: str
    options: tuple[tuple[str, str], ...]


def mount_of(path: Path, mountinfo: Path = MOUNTINFO) -> Mount | None:
    """The mount of a path, by its mount ID; None of one that only another mount namespace has. Raises OSError.

    st_dev of a file does not identify the mount: each subvolume of btrfs has a number of its own, which is in no line
    of mountinfo, and so have files on overlayfs.
    """
    with closing_descriptor(os.open(path, os.O_PATH | os.O_CLOEXEC)) as descriptor:
        fields = dict(line.split(":", 1) for line in read_kernel_lines(f"/proc/self/fdinfo/{descriptor}"))
    number = fields["mnt_id"].strip()
    return next((mount for mount in mounts_in(mountinfo) if mount.number == number), None)


def mounts_in(mountinfo: Path = MOUNTINFO) -> Iterator[Mount]:
    """In the order of mounting. Raises OSError."""
    for line in read_kernel_lines(mountinfo):
        fields, _, filesystem = line.partition(" - ")
        number, _, device, _, point, _ = fields.split(" ", 5)
        kind, source, options = filesystem.split(" ", 2)
        pairs = (option.partition("=") for option in options.split(","))
        yield Mount(number, device, unescaped(point), kind, unescaped(source),
                    tuple((name, unescaped(value)) for name, _, value in pairs))


def overlay_layers(mount: Mount) -> list[Path]:
    r"""The directories of an overlay, the upper one first. Relative ones are those of the process that mounted it.

    overlayfs takes \: and \, for separators in names.
    """
    upper = [value for name, value in mount.options if name == "upperdir"]
    lower = [part for name, value in mount.options if name == "lowerdir" for part in re.split(r"(?<!\\):", value)]
    more = [value for name, value in mount.options if name in ("lowerdir+", "datadir+")]
    paths = (Path(re.sub(r"\\(.)", r"\1", value)) for value in (*upper, *lower, *more))
    return [path for path in paths if path.is_absolute()]


def mount_points(kind: str, mounts: Path = MOUNTS) -> list[Path]:
    """Where file systems of a kind are mounted: tracefs, cgroup2."""
    entries = [line.split(" ") for line in read_kernel_lines(mounts)]
    return [Path(unescaped(fields[1])) for fields in entries if fields[2] == kind]


def unescaped(text: str) -> str:
    r"""A name of /proc/mounts or /proc/swaps, which has \ooo for white space, backslashes and separators."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


@contextmanager
def handled_signals(handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], object]]) -> Iterator[None]:
    """Handle signals while the block runs in the main thread; no other thread can. A SIGHUP that is ignored, as by
    nohup, stays ignored."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()
                  if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
