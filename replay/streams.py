"""Streams of I/Os that come from a rule instead of a trace, as batches of the plan.

Each numbers its rows from 0 (`source_row`), is the same at every call, and can begin at any of its rows: what an
interrupted preparation goes on with is the very rest of what it had begun.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from blkreel.traces.schema import OPS

BATCH_ROWS = 65_536
_MASK = np.uint64(0xFFFFFFFF)


_OPTIONAL = {"target": "i2", "after_1": "i4", "after_2": "i4", "after_3": "i4", "after_4": "i4", "behind": "i4",
             "delay_ns": "i8", "captured_ns": "i8", "captured_latency_ns": "i8"}


def plan_batch(offset_bytes, length_bytes, op, *, due_ns=-1, flags=0, stream=0, burst=-1, source_row=-1,
               **more) -> dict:
    """One batch of the plan; what is a single number goes for every row. more: optional columns (engine.py)."""
    count = len(offset_bytes)
    columns = {"due_ns": (due_ns, "i8"), "offset_bytes": (offset_bytes, "i8"), "length_bytes": (length_bytes, "i8"),
               "op": (op, "i1"), "flags": (flags, "i4"), "stream": (stream, "i2"), "burst": (burst, "i4"),
               "source_row": (source_row, "i8")}
    columns |= {name: (more[name], code) for name, code in _OPTIONAL.items() if name in more}
    return {name: np.ascontiguousarray(np.broadcast_to(np.asarray(value, code), count))
            for name, (value, code) in columns.items()}


def ranges(extents, op: str, chunk_bytes: int, first_row: int = 0) -> Iterator[dict]:
    """Each extent from start to end in chunks; the last chunk of an extent may be short.

    extents: Extents, or PlacedBlocks, which are gone through as they are needed.
    """
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


def permutation(span_bytes: int, block_bytes: int, op: str, seed: int, first_row: int = 0) -> Iterator[dict]:
    """Every block of the first `span_bytes` once, in random order."""
    order = Permutation(span_bytes // block_bytes, seed)
    for low in range(first_row, order.count, BATCH_ROWS):
        row = np.arange(low, min(low + BATCH_ROWS, order.count))
        yield plan_batch(order(row) * block_bytes, block_bytes, OPS[op], source_row=row)


def with_replacement(span_bytes: int, block_bytes: int, op: str, volume_bytes: int, seed: int,
                     first_row: int = 0) -> Iterator[dict]:
    """Random blocks of the first `span_bytes`, until `volume_bytes` are reached; a block may come again.

    Each BATCH_ROWS rows have a seed of their own, so that beginning far inside costs no more than one of them.
    """
    rows = volume_bytes // block_bytes
    for low in range(first_row // BATCH_ROWS * BATCH_ROWS, rows, BATCH_ROWS):
        random = np.random.default_rng([seed, low // BATCH_ROWS])
        block = random.integers(0, span_bytes // block_bytes, min(BATCH_ROWS, rows - low))
        row = np.arange(low, low + len(block))
        wanted = row >= first_row
        if wanted.any():
            yield plan_batch(block[wanted] * block_bytes, block_bytes, OPS[op], source_row=row[wanted])


@dataclass(frozen=True)
class Permutation:
    """A random order of 0 .. count-1 in no memory: a Feistel network over the next even number of bits.

    What it sends outside is sent on until it falls inside (cycle walking), which keeps it one to one.
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

    def _shuffle(self, value):
        half = np.uint64(max(1, (max(self.count - 1, 1).bit_length() + 1) // 2))
        mask = np.uint64((1 << int(half)) - 1)
        left, right = value >> half, value & mask
        for key in np.random.default_rng(self.seed).integers(0, 2**32, 6, np.uint64):
            left, right = right, left ^ (_mixed(right ^ key) & mask)
        return (left << half) | right


def _mixed(value):
    """A 32-bit finalizer: every bit of the input reaches every bit of the result."""
    value = value & _MASK
    value = ((value ^ (value >> np.uint64(16))) * np.uint64(0x7FEB352D)) & _MASK
    value = ((value ^ (value >> np.uint64(15))) * np.uint64(0x846CA68B)) & _MASK
    return value ^ (value >> np.uint64(16))
