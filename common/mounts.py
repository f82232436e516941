"""The mount that a path is on, from /proc/self/mountinfo (proc_pid_mountinfo(5))."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from .system import read_kernel_lines

MOUNTINFO = Path("/proc/self/mountinfo")


@dataclass(frozen=True)
class Mount:
    """kind: of the file system, such as ext4. options: of the file system, in order; "" without a value."""

    point: str
    kind: str
    source: str
    options: tuple[tuple[str, str], ...]


def mount_of(path: Path, mountinfo: Path = MOUNTINFO) -> Mount | None:
    """The mount of a path, by its mount ID; None of one that only another mount namespace has. Raises OSError.

    st_dev of a file does not identify the mount: each subvolume of btrfs has a number of its own, which is in no line
    of mountinfo, and so have files on overlayfs.
    """
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        fields = dict(line.split(":", 1) for line in read_kernel_lines(f"/proc/self/fdinfo/{descriptor}"))
    finally:
        os.close(descriptor)
    number = fields["mnt_id"].strip()
    for line in read_kernel_lines(mountinfo):
        if line.split(" ", 1)[0] == number:
            return _parsed(line)
    return None


def overlay_layers(mount: Mount) -> list[Path]:
    r"""The directories of an overlay, the upper one first. Relative ones are those of the process that mounted it.

    overlayfs takes \: and \, for separators in names.
    """
    upper = [value for name, value in mount.options if name == "upperdir"]
    lower = [part for name, value in mount.options if name == "lowerdir" for part in re.split(r"(?<!\\):", value)]
    more = [value for name, value in mount.options if name in ("lowerdir+", "datadir+")]
    paths = (Path(re.sub(r"\\(.)", r"\1", value)) for value in (*upper, *lower, *more))
    return [path for path in paths if path.is_absolute()]


def unescaped(text: str) -> str:
    r"""A name of /proc/mounts or /proc/swaps, which has \ooo for white space, backslashes and separators."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _parsed(line: str) -> Mount:
    fields, _, rest = line.partition(" - ")
    kind, source, options = rest.split(" ", 2)
    pairs = (option.partition("=") for option in options.split(","))
    return Mount(unescaped(fields.split(" ")[4]), kind, unescaped(source),
                 tuple((name, unescaped(value)) for name, _, value in pairs))
