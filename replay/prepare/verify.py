"""Verification of a prepared drive: random blocks are read back past the page cache.

The engine writes a stamp at the start of each 4 KiB (native/payload.h): the intended offset, or COPY_OFFSET for one of
several copies, and a number derived from the seed of the engine run. So lost, misplaced and old data is found.
"""

import errno
import math
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from blkreel.common.errors import BlkreelError
from blkreel.common.progress import Progress
from blkreel.common.system import closing_descriptor
from blkreel.common.units import format_bytes
from blkreel.replay.drive.claim import Claim, held
from blkreel.replay.drive.target import Target
from blkreel.replay.engine.engine import Payload
from blkreel.replay.plan.extents import Extents

from .states import Filled, Step

BLOCK_BYTES = 4096  # each begins with a stamp
STAMP_BYTES = 16
COPY_OFFSET = np.uint64(2**64 - 1)
_COPY_KINDS = 256
# More pieces than any run writes (4 PiB). Other data passes for a stamp of a run once in 16 million times.
_MOST_PIECES = 1 << 40
_WORD = 2**64
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
# If all of them are right: with 95 % confidence fewer than one block in a thousand is wrong (1 - 0.999^3000 = 0.950).
SAMPLES = 3000
_END_EXTENTS = 1000
_UNWRITTEN_SAMPLES = 300
_OUTSTANDING = 16
_DEVIATIONS = 5.0  # of a share; exceeded by chance once in three million times
_REMEDY = "its state is unknown now: read the kernel log with dmesg | tail, and prepare it again"

# Reads (offset, length) of the drive.
Read = Callable[[int, int], bytes]


@dataclass(frozen=True)
class Verified:
    """blocks: number read back, all as written. unwritten: contents of the unwritten space, in words."""

    blocks: int
    unwritten: str | None


def mixed(value: int) -> int:
    """The same as mix64() of payload.c: the finalizer of splitmix64 (Steele, Lea, Flood 2014)."""
    value %= _WORD
    value = (value ^ value >> 30) * _FACTORS[0] % _WORD
    value = (value ^ value >> 27) * _FACTORS[1] % _WORD
    return value ^ value >> 31


def unmixed(value: np.ndarray) -> np.ndarray:
    """The inverse of mixed()."""
    value = value.astype(np.uint64)
    for shift, factor in ((31, _FACTORS[1]), (27, _FACTORS[0]), (30, 1)):
        # A shifted xor is undone by two, the second with twice the shift.
        value = value ^ value >> np.uint64(shift) ^ value >> np.uint64(2 * shift)
        value = value * np.uint64(pow(factor, -1, _WORD))
    return value


def run_of(counter: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
    """The index of the seed of the engine run that wrote each stamp; -1 for none."""
    plain, runs = unmixed(counter), np.full(len(counter), -1)
    for run, seed in enumerate(seeds):
        number = plain ^ np.uint64(mixed(seed))
        is_unique = (number >= 1) & (number <= _MOST_PIECES)
        is_copy = ~number < _COPY_KINDS
        runs[is_unique | is_copy] = run
    return runs


@dataclass(frozen=True)
class Writers:
    """The engine runs of a preparation, each with its seed, and the step of each.

    steps: all, with the erase. rounds: number of rounds of the last step.
    """

    seeds: Sequence[int]
    step_of_run: Sequence[int]
    steps: Sequence[Step]
    rounds: int = 1

    def step_of(self, counter: np.ndarray) -> np.ndarray:
        """The step that wrote each stamp; -1 for none of them."""
        run = run_of(counter, self.seeds)
        return np.where(run >= 0, np.array([*self.step_of_run, -1])[run], -1)

    def least(self, at: np.ndarray) -> np.ndarray:
        """The last step that certainly writes each of these offsets."""
        least = np.zeros(len(at), np.int64)
        for number, step in enumerate(self.steps):
            if isinstance(step.covers, Extents):
                extent = np.searchsorted(step.covers.start, at, "right") - 1
                least[(extent >= 0) & (at < step.covers.end[extent])] = number
            elif step.covers is not None:
                least[:] = number
        return least

    def at_random(self, filled_bytes: int) -> tuple[int, float] | None:
        """(index, expected share of the filled blocks) of the last step, if it writes with replacement."""
        number, step = len(self.steps) - 1, self.steps[-1]
        if step.plan is None or step.erases or step.covers is not None:
            return None
        return number, -math.expm1(-step.total_bytes * self.rounds / filled_bytes)


def verify(target: Target, filled: Filled, payload: Payload, seed: int, progress: Progress, unwritten_limit: int = 0,
           writers: Writers | None = None) -> Verified:
    """Read SAMPLES random filled blocks, and both ends of each extent (of at most 1000 extents).

    unwritten_limit: the size of the drive, to read some unwritten blocks too; they are described, not judged. 0: none.
    writers: each block must have been written by one of them, and not by an earlier step than the last certain one.

    Raises BlkreelError if a block does not hold what was written, or cannot be read.
    """
    with held(target) as claim:
        if claim is None:
            raise BlkreelError(f"cannot read {target.path} back: it holds no data", "choose a drive or a file")
        return _verify_claimed(target, claim, filled, payload, seed, progress, unwritten_limit, writers)


def _verify_claimed(target: Target, claim: Claim, filled: Filled, payload: Payload, seed: int, progress: Progress,
                    unwritten_limit: int, writers: Writers | None) -> Verified:
    at, length = samples(filled, seed)
    with reader(claim) as read:
        counter, intended = _read_stamps(read, at, length, progress)
        right = (counter != 0) & (intended == at.view(np.uint64))  # an empty block at 0 has the right offset
        if payload.duplicates_percent:
            right |= (counter != 0) & (intended == COPY_OFFSET)
        if writers:
            step = writers.step_of(counter)
            right &= step >= writers.least(at)
        if not right.all():
            wrong = at[~right]
            raise BlkreelError(
                f"{len(wrong):,} of {len(at):,} blocks read back from {target.path} differ from what was written, "
                f"the first at offset {int(wrong[0]):,}", _REMEDY)
        if writers and len(at):
            _check_random(target, writers.at_random(filled.bytes), step)
        unwritten = _describe_unwritten(read, filled, unwritten_limit, seed) if (
            isinstance(filled, Extents) and unwritten_limit) else None
    return Verified(len(at), unwritten)


def _read_stamps(read: Read, at: np.ndarray, length: np.ndarray, progress: Progress) -> tuple[np.ndarray, np.ndarray]:
    stamps = np.empty((len(at), 2), np.uint64)
    blocks = zip(at.tolist(), length.tolist(), strict=True)
    with progress("reading back", len(at)) as task:
        for number, data in enumerate(_read_parallel(read, blocks)):
            stamps[number] = np.frombuffer(data[:STAMP_BYTES], "=u8")
            if number % 100 == 0:
                task.update(number, "")
    return stamps[:, 0], stamps[:, 1]


def _check_random(target: Target, expected: tuple[int, float] | None, step: np.ndarray) -> None:
    """With replacement a single block may be missed, but the share of all blocks hardly varies."""
    if expected is None:
        return
    number, share = expected
    measured = float((step == number).mean())
    if measured < share - _DEVIATIONS * math.sqrt(share * (1 - share) / len(step)):
        raise BlkreelError(f"{100 * measured:.0f} % of the blocks read back from {target.path} hold random writes, "
                           f"instead of {100 * share:.0f} %", _REMEDY)


def samples(filled: Filled, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ascending offsets, and lengths, of the blocks to read. Stamps are at each 4 KiB from the start of an extent."""
    count = sum(int(_pieces(part).sum()) for part in filled.batches())
    extents = sum(len(part.start) for part in filled.batches())
    if not count:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    random = np.random.default_rng([seed, 1])
    # Without replacement, and without a permutation of all blocks, which needs too much memory.
    chosen = np.arange(count) if count <= SAMPLES else random.choice(count, SAMPLES, replace=False, shuffle=False)
    chosen.sort()
    every = -(-extents // _END_EXTENTS)
    at: list[np.ndarray] = []
    length: list[np.ndarray] = []
    piece_before = extent_before = 0
    for part in filled.batches():
        pieces = _pieces(part)
        before = np.concatenate([[0], np.cumsum(pieces)])
        in_part = chosen[(chosen >= piece_before) & (chosen < piece_before + before[-1])] - piece_before
        ends = np.flatnonzero((extent_before + np.arange(len(pieces))) % every == 0)
        piece = np.unique(np.concatenate([in_part, before[ends], before[ends + 1] - 1]))
        extent = np.searchsorted(before, piece, "right") - 1
        offset = part.start[extent] + (piece - before[extent]) * BLOCK_BYTES
        at.append(offset)
        length.append(np.minimum(BLOCK_BYTES, part.end[extent] - offset))
        piece_before += int(before[-1])
        extent_before += len(pieces)
    return np.concatenate(at), np.concatenate(length)


def _pieces(part: Extents) -> np.ndarray:
    pieces: np.ndarray = -(-(part.end - part.start) // BLOCK_BYTES)
    return pieces


def _describe_unwritten(read: Read, filled: Extents, size_bytes: int, seed: int) -> str | None:
    """What some of the unwritten blocks hold; None if all were written."""
    starts = np.concatenate([[0], filled.end])
    ends = np.concatenate([filled.start, [size_bytes]])
    starts, ends = -(-starts // BLOCK_BYTES) * BLOCK_BYTES, ends // BLOCK_BYTES * BLOCK_BYTES
    some = ends > starts
    if not some.any():
        return None
    at, _ = samples(Extents(starts[some], ends[some]), seed)
    at = np.unique(at[np.linspace(0, len(at) - 1, min(len(at), _UNWRITTEN_SAMPLES)).astype(int)])
    nonzero = unreadable = 0
    for offset in at.tolist():
        try:
            nonzero += int(any(read(offset, BLOCK_BYTES)))
        except BlkreelError:
            unreadable += 1
    size = format_bytes(int((ends - starts)[some].sum()))
    if unreadable:
        return f"{unreadable} of {len(at)} blocks in {size} of unwritten space cannot be read"
    if not nonzero:
        return f"{size} of unwritten space read as zeros"
    return f"{nonzero} of {len(at)} blocks in {size} of unwritten space hold old data"


def _read_parallel(read: Read, blocks: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """The data of each block, in their order, several at a time, so that latencies overlap."""
    with ThreadPoolExecutor(_OUTSTANDING) as pool:
        try:
            yield from pool.map(lambda block: read(*block), blocks)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def reader(claim: Claim, most_bytes: int = BLOCK_BYTES) -> Iterator[Read]:
    """A function that reads up to most_bytes past the page cache, and that several threads may call."""
    path = claim.target.path
    try:
        file = claim.reopen(os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # The file system of a file target has no direct I/O: there is no drive behind its cache.
        file = claim.reopen(os.O_RDONLY)
    thread_data = threading.local()

    def read(offset: int, length: int) -> bytes:
        if not hasattr(thread_data, "buffer"):
            thread_data.buffer = mmap.mmap(-1, most_bytes)  # aligned for direct I/O
        buffer: mmap.mmap = thread_data.buffer
        try:
            got = os.preadv(file, [memoryview(buffer)[:length]], offset)
        except OSError as error:
            raise BlkreelError(f"cannot read {path} at offset {offset:,}: {error.strerror}",
                               "read the kernel log: dmesg | tail") from error
        if got != length:
            raise BlkreelError(f"{path} ends at offset {offset + got:,}", "read the kernel log: dmesg | tail")
        return buffer[:length]

    with closing_descriptor(file):
        yield read
