"""A slow and a fast drive with the same data: an emulated drive, and a loop device over memory."""

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")


class CannotMake(Exception):
    """The drive is not available on this machine; the message has the reason."""


@contextmanager
def fast_drive(contents):
    """A drive with a copy of the image `contents` in memory. Yields its path."""
    with _copy(contents) as image, _loop_over(image) as drive:
        yield drive


@contextmanager
def slow_drive(contents, latency_ns):
    """The same, emulated: each read, write and flush takes latency_ns, any number of them at once."""
    with _copy(contents) as image:
        keys = {**dict.fromkeys(("read_latency", "write_latency", "flush_latency"), f"{latency_ns}ns"),
                **dict.fromkeys(("read_bandwidth", "write_bandwidth"), "1000GB/s"), "channels": "1024"}
        description = ",".join([f"nil:{image.stat().st_size}", *(f"{key}={value}" for key, value in keys.items())])
        with emulated(description, "--image", image) as drive:
            yield drive


@contextmanager
def emulated(description, *options, before=()):
    """Yields the path of the emulated drive. before: words before the command."""
    server = subprocess.Popen(
        [*before, Path(sys.executable).with_name("blkreel"), "emulate", description, *options, "--name",
         f"pair-{os.getpid()}", "--accept-inexact"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        drive = server.stdout.readline().partition(":")[0]
        if not drive:
            raise CannotMake(server.stderr.read().strip())
        yield drive
    finally:
        server.terminate()
        server.communicate()


@contextmanager
def _copy(contents):
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="blkreel-pair-") as directory:
        image = Path(directory) / "image"
        subprocess.run(["cp", "--sparse=always", contents, image], check=True)
        yield image


@contextmanager
def _loop_over(image):
    result = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", image], capture_output=True, text=True)
    if result.returncode:
        raise CannotMake(f"needs a loop device: {result.stderr.strip()}")
    drive = result.stdout.strip()
    try:
        yield drive
    finally:
        subprocess.run(["losetup", "--detach", drive], check=True)


@contextmanager
def mounted(drive):
    """Mounts the ext4 file system of the drive. Yields the mount point."""
    with tempfile.TemporaryDirectory(prefix="blkreel-pair-") as directory:
        subprocess.run(["mount", "-o", "noatime,nodiscard", drive, directory], check=True)
        try:
            yield Path(directory)
        finally:
            subprocess.run(["umount", directory], check=True)


def new_image(path, size_bytes):
    """A file of random bytes: an image without a file system."""
    with open(path, "wb") as file:
        for _ in range(size_bytes >> 20):
            file.write(os.urandom(1 << 20))


def new_filesystem(path, size_bytes, fill):
    """An image with an ext4 file system, filled by fill(directory) with the files of a program."""
    with open(path, "wb") as file:
        file.truncate(size_bytes)
    # No deferred initialization by the kernel during the measurement.
    options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", options, path], check=True)
    with _loop_over(path) as drive, mounted(drive) as directory:
        fill(directory)
