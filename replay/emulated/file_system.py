"""The file system of an emulated drive: formatted, mounted and unmounted for a command."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from blkreel.common.command_line import PRIVILEGED
from blkreel.common.errors import BlkreelError, SafetyError, UsageError, os_errors
from blkreel.common.files.safe_files import caller_of_sudo
from blkreel.common.system import find_program

# All initialization is done now, so that a program does not run beside it.
_FORMAT = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
FILE_SYSTEMS = tuple(_FORMAT)


@dataclass(frozen=True)
class FileSystem:
    """kind: to format the drive with; None to mount what is on it. directory: mount point; None: not mounted."""

    kind: str | None
    directory: Path | None

    @classmethod
    def checked(cls, kind: str | None, directory: Path | None, image: Path | None, force: bool) -> "FileSystem | None":
        """Of the options of a command. Raises UsageError, and SafetyError if it would format an image with data."""
        if kind is None and directory is None:
            return None
        if directory and not directory.is_dir():
            raise UsageError(f"--mount {directory}: no such directory", f"mkdir {directory}")
        has_data = image is not None and image.exists()
        if kind and has_data and not force:
            raise SafetyError(f"--fs {kind} formats {image}, which has data",
                              "omit --fs to use its file system, or add --force")
        kind = kind or (None if has_data else "ext4")
        if kind and find_program(_FORMAT[kind][0]) is None:
            raise UsageError(f"--fs {kind}: no program {_FORMAT[kind][0]}", "install it, or choose another --fs")
        return cls(kind, directory)

    def make(self, device: str) -> None:
        if self.kind:
            _run(*_FORMAT[self.kind], device)
        if self.directory:
            _run("mount", device, str(self.directory))
            # The command runs as the caller of sudo.
            if self.kind and (owner := caller_of_sudo()):
                os.chown(self.directory, *owner)

    def unmount(self) -> None:
        if self.directory and os.path.ismount(self.directory):
            unmount(self.directory)


def unmount(directory: Path | str) -> None:
    """Unmount, after programs that have files open there too: for them it stays mounted until they close them."""
    if subprocess.run(["umount", str(directory)], stderr=subprocess.DEVNULL).returncode:
        _run("umount", "--lazy", str(directory))


def _run(*words: str) -> None:
    with os_errors(BlkreelError, f"cannot run {words[0]}"):
        result = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    if result.returncode:
        why = last_message(result.stderr) or f"exit code {result.returncode}"
        raise BlkreelError(f"{words[0]} failed: {why}", PRIVILEGED if is_refused(why) else "see: dmesg | tail")


def last_message(stderr: str) -> str:
    """Of a program of the system. An indented line continues the one before it: mount ends with one about dmesg."""
    return next((line for line in reversed(stderr.splitlines()) if line.strip() and not line[0].isspace()), "")


def is_refused(why: str) -> bool:
    """Whether a program of the system was refused what root may do elsewhere, as a container refuses mounts."""
    return re.search("permission denied|operation not permitted|unused loop device", why, re.IGNORECASE) is not None
