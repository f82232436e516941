"""A torrent of this machine's own: tracker, seeder and what they serve, all in memory, beside the drive."""

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scratch import Scratch
from swarm import make_payload, swarm

DOWNLOADS = "root/Downloads"
_PICTURE_BYTES = 1.47e6


@contextmanager
def torrent(scratch: Scratch, size_bytes: int) -> Iterator[Path]:
    """Yields the torrent file; its download goes to DOWNLOADS on the drive."""
    directory = scratch.memory / "torrent"
    album = directory / "holiday"
    album.mkdir(parents=True)
    for number, file_bytes in enumerate(sizes(size_bytes, _PICTURE_BYTES)):
        make_payload(album / f"{number:04}.jpg", file_bytes)
    with swarm(album, directory, scratch.workspace.environment) as seeded:
        yield seeded.torrent


def sizes(total_bytes: int, median_bytes: float) -> Iterator[int]:
    """Sizes of files around the median, some much larger. The same each time."""
    numbers = random.Random(1)
    while total_bytes > 0:
        size_bytes = min(total_bytes, int(numbers.lognormvariate(math.log(median_bytes), 0.7)))
        yield size_bytes
        total_bytes -= size_bytes
