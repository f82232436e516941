"""Generated streams of I/Os, as batches of the plan.

Each numbers its rows from 0 (`source_row`), is the same at every call, and can start at any row, so that an interrupted
preparation continues with the same I/Os.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from blkreel.replay.engine.engine import Batch
from blkreel.replay.plan.batch import plan_batch
from blkreel.replay.plan.extents import Extents, MappedBlocks
from blkreel.traces.format.schema import OPS

BATCH_ROWS = 65_536
_MASK = np.uint64(0xFFFFFFFF)


def ranges(extents: Extents | MappedBlocks, op: str, chunk_bytes: int, first_row: int = 0) -> Iterator[Batch]:
    """Each extent from start to end in chunks; the last chunk of an extent may be short."""
    part_row = 0
    for part in extents.batches():
        before = np.concatenate([[0], np.cumsum(-(-(part.end - part.start) // chunk_bytes))])
        rows = int(before[-1])
        for low in range(max(0, first_row - part_row), rows, BATCH_ROWS):
            row = np.arange(low, min(low + BATCH_ROWS, rows))
            extent = np.searchsorted(before, row, "right") - 1
            offset = part.start[extent] + (row - before[extent]) * chunk_bytes
            yield plan_batch(offset, np.minimum(chunk_bytes, part.end[extent] - offset), OPS[op],
                             source_row=part_row + row)
        part_row += rows


def permutation(span_bytes: int, block_bytes: int, op: str, seed: int, first_row: int = 0) -> Iterator[Batch]:
    """Every block of the first `span_bytes` once, in random order."""
    order = Permutation(span_bytes // block_bytes, seed)
    for low in range(first_row, order.count, BATCH_ROWS):
        row = np.arange(low, min(low + BATCH_ROWS, order.count))
        yield plan_batch(order(row) * block_bytes, block_bytes, OPS[op], source_row=row)


def with_replacement(span_bytes: int, block_bytes: int, volume_bytes: int, seed: int,
                     first_row: int = 0) -> Iterator[Batch]:
    """Writes of random blocks of the first `span_bytes` with replacement, `volume_bytes` in total.

    Each batch of BATCH_ROWS has a seed of its own, so that starting at any row costs at most one batch.
    """
    rows = volume_bytes // block_bytes
    for low in range(first_row // BATCH_ROWS * BATCH_ROWS, rows, BATCH_ROWS):
        random = np.random.default_rng([seed, low // BATCH_ROWS])
        block = random.integers(0, span_bytes // block_bytes, min(BATCH_ROWS, rows - low))
        row = np.arange(low, low + len(block))
        mask = row >= first_row
        if mask.any():
            yield plan_batch(block[mask] * block_bytes, block_bytes, OPS["write"], source_row=row[mask])


@dataclass(frozen=True)
class Permutation:
    """A random permutation of 0 .. count-1 without memory: a Feistel network over the next even number of bits.

    Results of count or more are permuted again until they are below (cycle walking), which keeps it one to one.
    """

    count: int
    seed: int

    def __call__(self, index: np.ndarray) -> np.ndarray:
        value = index.astype(np.uint64)
        outside = np.ones(len(value), bool)
        while outside.any():
            value[outside] = self._shuffle(value[outside])
            outside = value >= self.count
        return value.astype(np.int64)

    def _shuffle(self, value: np.ndarray) -> np.ndarray:
        half = np.uint64(max(1, (max(self.count - 1, 1).bit_length() + 1) // 2))
        mask = np.uint64((1 << int(half)) - 1)
        left, right = value >> half, value & mask
        for key in np.random.default_rng(self.seed).integers(0, 2**32, 6, np.uint64):
            left, right = right, left ^ (_mixed(right ^ key) & mask)
        return (left << half) | right


def _mixed(value: np.ndarray) -> np.ndarray:
    """A 32-bit finalizer: every bit of the input affects every bit of the result."""
    value = value & _MASK
    value = ((value ^ (value >> np.uint64(16))) * np.uint64(0x7FEB352D)) & _MASK
    value = ((value ^ (value >> np.uint64(15))) * np.uint64(0x846CA68B)) & _MASK
    return value ^ (value >> np.uint64(16))
