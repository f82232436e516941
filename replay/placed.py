"""Blocks on a target that something is to be written to: any number of them, in the memory of their set."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from blkreel.traces.block_set import BlockSet

from .extents import Extents


class PlacedBlocks:
    """blocks: whole blocks of the target; where a mapping is given, in bytes of the source, each to be moved by it."""

    def __init__(self, blocks: BlockSet | None = None, mapping=None):
        self._blocks = blocks if blocks is not None else BlockSet()
        self._mapping = mapping

    @cached_property
    def _ranges(self) -> int:
        return len(self._blocks)

    def __len__(self) -> int:
        """How many ranges are written, without joining those that a map moves together."""
        return self._ranges * self._copies

    @property
    def bytes(self) -> int:
        return self._blocks.bytes * self._copies

    @cached_property
    def limit_bytes(self) -> int:
        """The end of the last range on the target."""
        last_bytes = self._blocks.limit_bytes
        if self._mapping is None or not last_bytes:
            return last_bytes
        # The last byte is moved, because the end may be where another range begins.
        last = int(self._mapping.move(np.array([last_bytes - 1]))[0])
        return last + 1 + (self._copies - 1) * self._mapping.stride_bytes

    def forget(self) -> None:
        """Free the memory of the blocks, once they are written; how many there were stays known."""
        len(self), self.limit_bytes
        self._blocks.forget()

    def batches(self) -> Iterator[Extents]:
        """All ranges on the target, in ascending order, some at a time."""
        for copy in range(self._copies):
            for start, end in self._blocks.ranges():
                if self._mapping is None:
                    yield Extents(start, end)
                    continue
                moved = self._mapping.move(start) + copy * self._mapping.stride_bytes
                yield Extents.of(moved, moved + end - start)

    @property
    def _copies(self) -> int:
        return self._mapping.copies if self._mapping is not None else 1
