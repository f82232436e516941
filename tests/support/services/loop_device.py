"""Loop devices, attached and mounted. Tests of other processes attach some at the same time."""

import errno
import fcntl
import os
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from waiting import wait_until

FREE_SECONDS = 120
FIRST_OWN_NUMBER = 64
LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81  # linux/loop.h
LOOP_MAJOR = 7


def attach_loop(image, *flags, path=None):
    """Attach `image` to a free loop device, or to `path`, and return its path. Skips the test if loop devices cannot be
    used here; if all are attached, waits for the tests that have them."""
    end = time.monotonic() + FREE_SECONDS
    while True:
        result = subprocess.run(["losetup", *([path] if path else ["--find", "--show"]), *flags, image],
                                capture_output=True, text=True)
        if result.returncode == 0:
            return path or result.stdout.strip()
        is_full = "unused loop device" in result.stderr or "Resource temporarily unavailable" in result.stderr
        if not is_full or time.monotonic() > end:
            pytest.skip(f"needs a loop device: {result.stderr.strip()}")
        time.sleep(0.2)


def own_loop(stack: ExitStack) -> str:
    """The path of a new loop device that `losetup --find` of another test does not take while it is detached: of free
    devices the kernel gives the one with the lowest number. `stack` removes it."""
    control = os.open("/dev/loop-control", os.O_RDWR)
    stack.callback(os.close, control)
    for number in range(FIRST_OWN_NUMBER, FIRST_OWN_NUMBER + 100):
        try:
            fcntl.ioctl(control, LOOP_CTL_ADD, number)
            break
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
    stack.callback(wait_until, lambda: _removed(control, number))
    path = Path(f"/dev/loop{number}")
    if not path.exists():  # where /dev is no devtmpfs
        os.mknod(path, 0o600 | 0o060000, os.makedev(LOOP_MAJOR, number))
        stack.callback(path.unlink)
    return str(path)


def _removed(control, number):
    try:
        fcntl.ioctl(control, LOOP_CTL_REMOVE, number)
    except OSError as error:
        if error.errno != errno.EBUSY:  # for as long as a process has it open
            raise
        return False
    return True


def detach_loop(path):
    """Detach the loop device at `path`. Raises AssertionError if an image stays attached.

    On a busy machine losetup at times fails with ENXIO although the kernel then releases the device, so the state of
    the device counts and not the exit code.
    """
    result = subprocess.run(["losetup", "--detach", path], capture_output=True, text=True)
    if result.returncode:
        attached = Path("/sys/block") / Path(path).name / "loop/backing_file"
        try:
            wait_until(lambda: not attached.exists())
        except AssertionError:
            raise AssertionError(result.stderr) from None


@contextmanager
def ext4(drive, directory, *mount_options):
    """A new file system on the drive, mounted on a directory that is made.

    Nothing is left for the kernel to write by itself while a capture begins and ends.
    """
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", drive], check=True)
    directory.mkdir()
    subprocess.run(["mount", *mount_options, drive, directory], check=True)
    subprocess.run(["sync", "--file-system", directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


def is_claimed(drive):
    """Whether somebody has it for itself, as who mounts it has."""
    try:
        os.close(os.open(drive, os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        assert error.errno == errno.EBUSY
        return True
    return False
