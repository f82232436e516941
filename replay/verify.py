"""Whether a prepared drive holds what was written to it: random blocks, read back past the page cache.

Every 4 KiB that the engine writes begin with a stamp (native/payload.h): the offset they were meant for, or COPY_OFFSET
where they are one of several copies, and a number that tells by which run of the engine. So what was lost, went to
another place, or came from an earlier time shows.
"""

import errno
import math
import mmap
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from blkreel.traces.errors import BlkreelError
from blkreel.traces.units import format_bytes

from .extents import Extents
from .payload import Payload
from .stamps import COPY_OFFSET, STAMP_BYTES, STAMP_EVERY_BYTES, run_of
from .states import Step
from .target import Target

BLOCK_BYTES = STAMP_EVERY_BYTES
# All of so many found right: with 95 % confidence fewer than one block in a thousand is wrong (1 - 0.999^3000 = 0.950).
SAMPLES = 3000
_END_EXTENTS = 1000
_BEYOND_SAMPLES = 300
_OUTSTANDING = 16
_DEVIATIONS = 5.0  # of a share that is found by chance: once in three million times
_REMEDY = "its state is unknown now; see dmesg, and prepare it again"


@dataclass(frozen=True)
class Verified:
    """blocks: that were read back and right. beyond: what was found where nothing was written."""

    blocks: int
    beyond: str | None


@dataclass(frozen=True)
class Writers:
    """Who wrote what is read back: the runs of a preparation's engine, each with its seed, and their steps.

    steps: of all, the erase among them. rounds: that were carried out of the last one.
    """

    seeds: Sequence[int]
    step_of_run: Sequence[int]
    steps: Sequence[Step]
    rounds: int = 1

    def step_of(self, counter: np.ndarray) -> np.ndarray:
        """Of stamps, the step that wrote them; -1 for none of these."""
        run = run_of(counter, self.seeds)
        return np.where(run >= 0, np.array([*self.step_of_run, -1])[run], -1)

    def least(self, at: np.ndarray) -> np.ndarray:
        """The last step that was to write each of these places for sure."""
        least = np.zeros(len(at), np.int64)
        for number, step in enumerate(self.steps):
            if isinstance(step.covers, Extents):
                extent = np.searchsorted(step.covers.start, at, "right") - 1
                least[(extent >= 0) & (at < step.covers.end[extent])] = number
            elif step.covers is not None:
                least[:] = number
        return least

    def at_random(self, filled_bytes: int) -> tuple[int, float] | None:
        """The last step, and which share of what is filled it is to have met, where it writes with replacement."""
        number, step = len(self.steps) - 1, self.steps[-1]
        if step.plan is None or step.erases or step.covers is not None:
            return None
        return number, -math.expm1(-step.total_bytes * self.rounds / filled_bytes)


def verify(target: Target, filled, payload: Payload, seed: int, progress, beyond_bytes: int = 0,
           writers: Writers | None = None) -> Verified:
    """Read SAMPLES random blocks of what was filled, and both ends of each extent (of at most 1000 of them).

    filled: Extents or PlacedBlocks. beyond_bytes: the size of the drive where what was not filled is to be looked at,
    too; what it reads there is not judged. writers: each block must have been written by one of them, and by the last
    one that was to write it.

    Raises BlkreelError where a block is not what was written, or cannot be read.
    """
    at, length = samples(filled, seed)
    with _opened(target) as read:
        counter, meant_for = _read_stamps(read, at, length, progress)
        right = (counter != 0) & (meant_for == at.view(np.uint64))  # an empty block at 0 has the right offset
        if payload.duplicates_percent:
            right |= (counter != 0) & (meant_for == COPY_OFFSET)
        if writers:
            step = writers.step_of(counter)
            right &= step >= writers.least(at)
        if not right.all():
            wrong = at[~right]
            raise BlkreelError(
                f"{len(wrong):,} of {len(at):,} blocks read back from {target.path} are not what was written there, "
                f"the first at {int(wrong[0]):,}", _REMEDY)
        if writers and len(at):
            _check_random(target, writers.at_random(filled.bytes), step)
        beyond = _look_beyond(read, filled, beyond_bytes, seed) if isinstance(filled, Extents) else None
    return Verified(len(at), beyond)


def _read_stamps(read, at, length, progress) -> tuple[np.ndarray, np.ndarray]:
    stamps = np.empty((len(at), 2), np.uint64)
    places = zip(at.tolist(), length.tolist(), strict=True)
    with progress("reading it back", len(at)) as task:
        for number, data in enumerate(_several(lambda place: read(*place)[:STAMP_BYTES], places)):
            stamps[number] = np.frombuffer(data, "=u8")
            if number % 100 == 0:
                task.update(number, "")
    return stamps[:, 0], stamps[:, 1]


def _check_random(target, wanted, step) -> None:
    """With replacement a block may be met or not, but of all of them a share is that hardly varies."""
    if wanted is None:
        return
    number, share = wanted
    found = float((step == number).mean())
    if found < share - _DEVIATIONS * math.sqrt(share * (1 - share) / len(step)):
        raise BlkreelError(f"{100 * found:.0f} % of the blocks read back from {target.path} hold what was written "
                           f"there at random, and {100 * share:.0f} % should", _REMEDY)


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
