"""An update is unpacked and synced: tar and zstd, from and to the same drive."""

import io
import random
import shutil
import subprocess
import tarfile
from pathlib import Path

from bittorrent import sizes
from scratch import RECORDINGS, Command, emulated_drive, make_sample

_BYTES = 2_100_000_000
_FILES_MEDIAN_BYTES = 5e6
_DRIVE_BYTES = 3800 << 20


def make(name: str) -> None:
    with emulated_drive(_DRIVE_BYTES) as scratch:
        archive, game = scratch.mount / "update.tar.zst", scratch.mount / "game"
        _pack(archive)
        command: Command = ["sh", "-c", 'mkdir "$1" && tar --zstd -C "$1" -xf "$0" && sync -f "$1"', archive, game]
        for _ in range(RECORDINGS):
            shutil.rmtree(game, ignore_errors=True)
            scratch.settle()
            scratch.record_best(name, command)
        shutil.rmtree(game)
        scratch.settle()
        scratch.time(command)


def _pack(archive: Path) -> None:
    """Of files that a compressor halves, about: each byte has one of 16 values."""
    numbers = random.Random(1)
    halved = bytes(value & 0x0f for value in range(256))
    with subprocess.Popen(["zstd", "--quiet", "-T2", "-o", archive], stdin=subprocess.PIPE) as packer:
        assert packer.stdin
        with tarfile.open(fileobj=packer.stdin, mode="w|") as tar:
            for number, file_bytes in enumerate(sizes(_BYTES, _FILES_MEDIAN_BYTES)):
                file = tarfile.TarInfo(f"{number:03}.pak")
                file.size = file_bytes
                tar.addfile(file, io.BytesIO(numbers.randbytes(file_bytes).translate(halved)))


make_sample("update-unpack", make)
