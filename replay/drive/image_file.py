"""Regular files as targets: whether overwriting one would destroy something other than a scratch image.

A file made by `truncate` has holes, or reads as zeros. A file that blkreel has used as a drive is marked, because a
preparation fills its holes.
"""

import os
from contextlib import suppress

from blkreel.common.errors import SafetyError

from .target import Identity, Target

_MARK = "user.blkreel.drive"  # an extended attribute
_PARQUET = b"PAR1"
_RESULT_FILES = ("records.parquet", "test.json", "catalog.json", "repetitions.json")
_SAMPLE_BYTES = 1 << 20

_accepted: set[Identity] = set()  # by this process: its first run may fill the holes before the next check


def refuse_output(target: Target) -> None:
    """Raise SafetyError for a trace, a run or another output of blkreel, whatever was confirmed."""
    with open(target.path, "rb") as file:
        is_output = file.read(len(_PARQUET)) == _PARQUET
    if not is_output:
        directory = target.path.parent
        is_output = directory.name.endswith(".spool") or any((directory / name).exists() for name in _RESULT_FILES)
    if is_output:
        raise SafetyError(f"{target.path} is a trace or another output of blkreel, and this overwrites it",
                          f"name a drive, or a new file: truncate -s 8GiB {target.path.parent / 'scratch.img'}")


def has_data(target: Target) -> bool:
    """Whether it may hold data of the user: no hole, not only zeros, and never used as a drive by blkreel."""
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


def accept(target: Target) -> None:
    """The file may be overwritten from now on."""
    _accepted.add(target.identity)
    with suppress(OSError):  # a file system without such attributes asks again when the file has no hole left
        os.setxattr(target.path, _MARK, b"1")
