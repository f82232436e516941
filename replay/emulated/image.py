"""The image of an emulated drive in a file, and the state of the drive beside it."""

import errno
import os
import shutil
import stat
from contextlib import ExitStack
from pathlib import Path

from blkreel.common.errors import BlkreelError, SafetyError, UsageError
from blkreel.common.files.safe_files import lock_file
from blkreel.common.units import format_bytes
from blkreel.replay.drive.safety import check
from blkreel.replay.drive.target import find_target


def state_file(image: Path) -> Path:
    """The file with the state of the drive: cache fill, written ranges, temperature."""
    return image.with_name(f"{image.name}.state")


def open_image(image: Path, size_bytes: int, stack: ExitStack) -> int:
    """A descriptor for direct I/O of the image, locked until the stack is closed. A missing image is created.

    If anything fails before the stack is closed with pop_all(), a created image is removed. Raises UsageError if the
    image does not fit, SafetyError if it is in use.
    """
    is_new = not os.path.lexists(image)
    if is_new:
        _check_room(image, size_bytes)
    else:
        _check_existing(image, size_bytes)
    try:
        new_only = os.O_CREAT | os.O_EXCL if is_new else 0
        descriptor = os.open(image, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC | new_only, 0o600)
    except OSError as error:
        if is_new and error.errno == errno.EINVAL:
            image.unlink(missing_ok=True)  # a file system without direct I/O creates it before it fails
        raise _cannot_use(image, error) from None
    try:
        if not lock_file(descriptor):
            raise SafetyError(f"{image} is in use by another emulated drive", "name another file: --image FILE")
        if is_new:
            _allocate(descriptor, image, size_bytes)
    except BaseException:
        os.close(descriptor)
        if is_new:
            image.unlink(missing_ok=True)
        raise
    stack.callback(os.close, descriptor)
    return descriptor


def _check_room(image: Path, size_bytes: int) -> None:
    try:
        free_bytes = shutil.disk_usage(image.parent).free
    except OSError as error:
        raise _cannot_use(image.parent, error) from None
    if size_bytes > free_bytes:
        raise UsageError(f"{image}: {format_bytes(free_bytes)} free, {format_bytes(size_bytes)} required",
                         "give a smaller drive: --size SIZE, or an image on another disk")


def _check_existing(image: Path, size_bytes: int) -> None:
    try:
        status = image.stat()
    except OSError as error:
        raise _cannot_use(image, error) from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a device" if stat.S_ISBLK(status.st_mode) else "not a regular file"
        raise UsageError(f"{image} is {kind}", "name a regular file or a new one: --image FILE")
    if status.st_size != size_bytes:
        raise UsageError(f"{image} has {status.st_size:,} bytes, the drive {size_bytes:,}",
                         f"give the drive its size: --size {status.st_size}")
    check(find_target(image), writes=False, destroy=None)


def _allocate(descriptor: int, image: Path, size_bytes: int) -> None:
    """So that a full disk cannot become an I/O error of the drive."""
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
        os.fsync(descriptor)
    except OSError as error:
        raise _cannot_use(image, error) from None


def _cannot_use(path: Path, error: OSError) -> BlkreelError:
    if error.errno == errno.EINVAL:
        return BlkreelError(f"{path}: its file system has no direct I/O", "name a file on a disk, or use --memory")
    return BlkreelError(f"cannot use {path}: {error.strerror}", "name another file: --image FILE")
