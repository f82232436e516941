"""A torrent of this machine's own: tracker, seeder and what they serve, all in memory, beside the drive."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scratch import Scratch

from blkreel.cli.demo.torrent import make_payload, swarm

DOWNLOADS = "root/Downloads"


@contextmanager
def torrent(scratch: Scratch, size_bytes: int) -> Iterator[Path]:
    """Yields the torrent file; its download goes to DOWNLOADS on the drive."""
    directory = scratch.memory / "torrent"
    album = directory / "holiday"
    album.mkdir(parents=True)
    for number, file_bytes in enumerate(_sizes(size_bytes)):
        make_payload(album / f"{number:04}.jpg", file_bytes)
    (scratch.mount / DOWNLOADS).mkdir(parents=True, exist_ok=True)
    with swarm(album, directory, scratch.workspace.environment) as seeded:
        yield seeded.torrent


def _sizes(total_bytes: int) -> Iterator[int]:
    """Of pictures: around 1.5 MB, some much larger. The same each time."""
    numbers = random.Random(1)
    while total_bytes > 0:
        size_bytes = min(total_bytes, int(numbers.lognormvariate(14.2, 0.7)))
        yield size_bytes
        total_bytes -= size_bytes
