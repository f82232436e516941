"""Whether a prepared drive holds what was written to it: random blocks, read back past the page cache.

Every 4 KiB that the engine writes begin with a stamp that holds the offset they were meant for (native/payload.h), or
COPY_OFFSET where they are one of several copies. So what was lost, or went to another place, shows.
"""

import errno
import mmap
import os
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from blkreel.traces.errors import BlkreelError
from blkreel.traces.units import format_bytes

from .extents import Extents
from .payload import Payload
from .target import Target

BLOCK_BYTES = 4096
# All of so many found right: with 95 % confidence fewer than one block in a thousand is wrong (1 - 0.999^3000 = 0.950).
SAMPLES = 3000
_END_EXTENTS = 1000
_BEYOND_SAMPLES = 300
_OUTSTANDING = 16
_STAMP = struct.Struct("=QQ")
_COPY_OFFSET = 2**64 - 1


@dataclass(frozen=True)
class Verified:
    """blocks: that were read back and right. beyond: what was found where nothing was written."""

    blocks: int
    beyond: str | None


def verify(target: Target, filled, payload: Payload, seed: int, progress, beyond_bytes: int = 0) -> Verified:
    """Read SAMPLES random blocks of what was filled, and both ends of each extent (of at most 1000 of them).

    filled: Extents or PlacedBlocks. beyond_bytes: the size of the drive where what was not filled is to be looked at,
    too; what it reads there is not judged.

    Raises BlkreelError where a block is not what was written, or cannot be read.
    """
    at, length = samples(filled, seed)
    with _opened(target) as read, progress("reading it back", len(at)) as task:
        wrong = []
        places = zip(at.tolist(), length.tolist(), strict=True)
        for done, (offset, data) in enumerate(_several(lambda place: (place[0], read(*place)), places), 1):
            if not _is_ours(data, offset, payload):
                wrong.append(offset)
            if done % 100 == 0:
                task.update(done, f"{len(wrong)} wrong" if wrong else "all as written")
        if wrong:
            raise BlkreelError(
                f"{len(wrong):,} of {len(at):,} blocks read back from {target.path} are not what was written there, "
                f"the first at {wrong[0]:,}", "its state is unknown now; see dmesg, and prepare it again")
        beyond = _look_beyond(read, filled, beyond_bytes, seed) if isinstance(filled, Extents) else None
    return Verified(len(at), beyond)


def samples(filled, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Offsets, ascending, and lengths of the blocks to read: stamps lie at each 4 KiB of an extent, from its start."""
    count = sum(int(_pieces(part).sum()) for part in filled.batches())
    extents = sum(len(part.start) for part in filled.batches())
    if not count:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    random = np.random.default_rng([seed, 1])
    # Without replacement, and in no memory for the others: they are too many to be permuted.
    chosen = np.arange(count) if count <= SAMPLES else random.choice(count, SAMPLES, replace=False, shuffle=False)
    chosen.sort()
    every = -(-extents // _END_EXTENTS)
    at, length, piece_before, extent_before = [], [], 0, 0
    for part in filled.batches():
        pieces = _pieces(part)
        before = np.concatenate([[0], np.cumsum(pieces)])
        mine = chosen[(chosen >= piece_before) & (chosen < piece_before + before[-1])] - piece_before
        ends = np.flatnonzero((extent_before + np.arange(len(pieces))) % every == 0)
        piece = np.unique(np.concatenate([mine, before[ends], before[ends + 1] - 1]))
        extent = np.searchsorted(before, piece, "right") - 1
        offset = part.start[extent] + (piece - before[extent]) * BLOCK_BYTES
        at.append(offset)
        length.append(np.minimum(BLOCK_BYTES, part.end[extent] - offset))
        piece_before += int(before[-1])
        extent_before += len(pieces)
    return np.concatenate(at), np.concatenate(length)


def _pieces(part):
    return -(-(part.end - part.start) // BLOCK_BYTES)


def _is_ours(data, offset, payload) -> bool:
    counter, meant_for = _STAMP.unpack_from(data)
    # An empty block at 0 has the right offset; no counter is 0 after it was mixed.
    return bool(counter) and meant_for == offset or (meant_for == _COPY_OFFSET and payload.duplicates_percent > 0)


def _look_beyond(read, filled, size_bytes, seed) -> str | None:
    """What some blocks hold that were not written: `zeros`, or how many of them something else."""
    starts = np.concatenate([[0], filled.end])
    ends = np.concatenate([filled.start, [size_bytes]])
    starts, ends = -(-starts // BLOCK_BYTES) * BLOCK_BYTES, ends // BLOCK_BYTES * BLOCK_BYTES
    some = ends > starts
    if not some.any():
        return None
    at, _ = samples(Extents(starts[some], ends[some]), seed)
    at = np.unique(at[np.linspace(0, len(at) - 1, min(len(at), _BEYOND_SAMPLES)).astype(int)])
    other = unreadable = 0
    for offset in at.tolist():
        try:
            other += any(read(offset, BLOCK_BYTES))
        except BlkreelError:
            unreadable += 1
    size = format_bytes(int((ends - starts)[some].sum()))
    if unreadable:
        return f"of the {size} that were not written, {unreadable} of {len(at)} blocks cannot be read"
    if not other:
        return f"the {size} that were not written read as zeros"
    return f"of the {size} that were not written, {other} of {len(at)} blocks hold old data"


def _several(do, items):
    """do(item) of each, in their order, some at a time: a hard disk chooses its way, and latencies overlap."""
    with ThreadPoolExecutor(_OUTSTANDING) as pool:
        try:
            yield from pool.map(do, items)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _opened(target):
    """A function that reads (offset, length) past the page cache; may be called by several threads."""
    try:
        file = os.open(target.path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # A file system without direct I/O, of a file that stands in for a drive: nothing lies behind its cache.
        file = os.open(target.path, os.O_RDONLY | os.O_CLOEXEC)
    own = threading.local()

    def read(offset, length):
        if not hasattr(own, "buffer"):
            own.buffer = mmap.mmap(-1, BLOCK_BYTES)  # direct I/O wants it aligned
        buffer = own.buffer
        try:
            got = os.preadv(file, [memoryview(buffer)[:length]], offset)
        except OSError as error:
            raise BlkreelError(f"{target.path} cannot be read at {offset:,}: {error.strerror}",
                               "look at: dmesg | tail") from error
        if got != length:
            raise BlkreelError(f"{target.path} ends at {offset + got:,}", "look at: dmesg | tail")
        return buffer[:length]

    try:
        yield read
    finally:
        os.close(file)
