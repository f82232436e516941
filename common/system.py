"""Small files and programs of the system. Names in files of /proc and /sys are bytes: see read_kernel_text()."""

import os
import shutil
from pathlib import Path

_SYSTEM_PROGRAMS = ("/usr/sbin", "/sbin")  # may not be on a user's path
# Only root can write here. A PATH that sudo or a service let through would give root another program.
ROOT_DIRECTORIES = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")


def read_kernel_text(path: Path | str) -> str:
    """The text without the newline at its end; a byte that is not UTF-8 is a surrogate (os.fsdecode). Raises OSError.

    Lines end with a newline only, and fields with a space: a name may have other white space of Unicode.
    """
    return os.fsdecode(Path(path).read_bytes()).removesuffix("\n")


def read_kernel_lines(path: Path | str) -> list[str]:
    """The lines of read_kernel_text(). Raises OSError."""
    text = read_kernel_text(path)
    return text.split("\n") if text else []


def text_in(path: Path) -> str:
    """The text of a file; "" if it cannot be read."""
    try:
        return read_kernel_text(path).strip()
    except OSError:
        return ""


def find_program(name: str) -> str | None:
    """The path of a program; None if it is not installed. Root does not use PATH."""
    directories = ROOT_DIRECTORIES if os.geteuid() == 0 else (os.environ.get("PATH", ""), *_SYSTEM_PROGRAMS)
    return shutil.which(name, path=os.pathsep.join(directories))
