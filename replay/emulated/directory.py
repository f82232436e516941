"""The directory of an emulated drive in /run, its link in /dev/blkreel, and what an ended drive may leave of them."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from blkreel.common.emulated import FILE, LINKS, RUN, UBLK
from blkreel.common.errors import BlkreelError, UsageError, os_errors
from blkreel.common.files.safe_files import lock_file
from blkreel.common.system import closing_descriptor, mounts_in, text_in

HELPER = Path(__file__).with_name("blkreel-emulate")
_LOCK = "lock"


@contextmanager
def claimed(name: str, run: Path = RUN, links: Path = LINKS) -> Iterator[tuple[Path, int]]:
    """The directory of a new drive, and the descriptor of its lock, which the server inherits.

    All of it is removed at the end. Raises UsageError if the name is taken.
    """
    sweep(run, links)
    directory = run / name
    try:
        run.mkdir(mode=0o755, parents=True, exist_ok=True)
        directory.mkdir(mode=0o755)
    except FileExistsError:
        raise UsageError(f"an emulated drive {name} runs already", "give this one another name: --name NAME") from None
    except OSError as error:
        raise BlkreelError(f"cannot create {directory}: {error.strerror}") from None
    lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (directory / FILE).touch(0o600)
        yield directory, lock
    finally:
        remove(directory, links)
        os.close(lock)


def sweep(run: Path = RUN, links: Path = LINKS) -> None:
    """Remove what killed drives left: a lock that nobody holds has no server."""
    for directory in sorted(run.glob("*")):
        try:
            lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        with closing_descriptor(lock):
            if lock_file(lock):
                remove(directory, links)


def remove(directory: Path, links: Path = LINKS) -> None:
    """Detach, unmount and remove a drive whose server has ended."""
    file = directory / FILE
    if record := text_in(directory / UBLK):
        node, _, key = record.split()
        subprocess.run([HELPER, "--remove", node.removeprefix("/dev/ublkb"), "--inode", key], stderr=subprocess.DEVNULL)
    for device in devices_over(file):
        subprocess.run(["losetup", "--detach", device], stderr=subprocess.DEVNULL)
    if any(mount.point == str(file) for mount in mounts_in()):
        subprocess.run(["umount", "--lazy", file], stderr=subprocess.DEVNULL)
    with suppress(OSError):
        (links / directory.name).unlink()
    with suppress(OSError):
        links.rmdir()
    shutil.rmtree(directory, ignore_errors=True)


def devices_over(file: Path) -> list[str]:
    """Loop devices over a file, or over those in a directory."""
    return [f"/dev/{entry.parent.parent.name}" for entry in sorted(Path("/sys/block").glob("loop*/loop/backing_file"))
            if f"{text_in(entry)}/".startswith(f"{file}/")]


def link(name: str, device: str, links: Path = LINKS) -> Path:
    """The stable name of a device."""
    path = links / name
    with os_errors(BlkreelError, f"cannot create {path}"):
        links.mkdir(mode=0o755, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(device)
    return path
