"""Programs that have a drive or an image open or mapped, as /proc shows them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from blkreel.common.errors import BlkreelError
from blkreel.common.system import read_kernel_text

from .file_identity import Identity, status_of

_O_PATH = 0o10000000


@dataclass(frozen=True)
class Opener:
    """how: `open` or `mapped`. device: the given path of the open file or drive."""

    pid: int
    name: str
    device: str
    how: str


def openers_of(paths: Mapping[Identity, str], proc: Path = Path("/proc")) -> tuple[list[Opener], int]:
    """Every other process that could do I/O to one of `paths`, and the number of processes that cannot be inspected.

    Only this process is left out: it issues nothing through descriptors that it inherited. A program that called it
    and has the drive open can go on using it, so it counts. A process that ends meanwhile is skipped. Without process
    1 /proc hides those of other users (hidepid), which count as one. Raises BlkreelError without /proc.
    """
    try:
        own = (proc / "self").readlink().name  # not getpid(): /proc may be that of another PID namespace
    except OSError:
        raise BlkreelError(f"no open files can be found: {proc} is not mounted", f"mount -t proc proc {proc}") from None
    openers, unseen = [], int(not (proc / "1").exists())
    for entry in sorted((entry for entry in proc.iterdir() if entry.name.isdigit()), key=lambda entry: int(entry.name)):
        if entry.name == own:
            continue
        try:
            use = _descriptor(entry, paths) or _mapping(entry, paths)
            if use:
                openers.append(Opener(int(entry.name), read_kernel_text(entry / "comm"), *use))
        except PermissionError:
            # Threads of the kernel have no command line, and no descriptors. With hidepid=1 nothing can be read.
            try:
                unseen += bool((entry / "cmdline").read_bytes())
            except OSError as denied:
                unseen += isinstance(denied, PermissionError)
        except OSError:
            continue
    return openers, unseen


def _descriptor(process: Path, paths: Mapping[Identity, str]) -> tuple[str, str] | None:
    for fd in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            identity = _status(fd)
            if identity and identity in paths and not _is_path_only(process / "fdinfo" / fd.name):
                return paths[identity], "open"
    return None


def _status(link: Path) -> Identity | None:
    try:
        return status_of(link, cached=True).identity
    except PermissionError:
        raise
    except OSError as error:
        # Closed since, or of a file system that is gone.
        raise FileNotFoundError(str(link)) from error


def _is_path_only(fdinfo: Path) -> bool:
    """Whether the descriptor was opened with O_PATH, which does no I/O."""
    flags = next(line for line in fdinfo.read_text().splitlines() if line.startswith("flags:"))
    return bool(int(flags.split()[1], 8) & _O_PATH)


def _mapping(process: Path, paths: Mapping[Identity, str]) -> tuple[str, str] | None:
    """A mapping outlives the descriptor that it was made with."""
    inodes = {b"%d" % inode for kind, _, inode in paths if kind == "file"}
    blocks = any(kind == "block" for kind, _, _ in paths)
    for line in (process / "maps").read_bytes().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or not (fields[4] in inodes or (blocks and fields[5].startswith(b"/dev/"))):
            continue
        # btrfs and overlayfs show another device in `maps` than stat(2).
        with suppress(FileNotFoundError):
            identity = _status(process / "map_files" / _as_file_name(fields[0]))
            if identity and identity in paths:
                return paths[identity], "mapped"
    return None


def _as_file_name(addresses: bytes) -> str:
    """The directory map_files writes addresses without leading zeros."""
    return "-".join(f"{int(address, 16):x}" for address in addresses.split(b"-"))
