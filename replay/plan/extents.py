"""Ranges of bytes: Extents as arrays, such as the steps of a preparation; MappedBlocks any number of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blkreel.traces.blocksets.block_set import BlockSet
from blkreel.traces.blocksets.intervals import union

from .mapping import Mapping


@dataclass(frozen=True)
class Extents:
    """Disjoint ranges [start, end) of bytes in ascending order, with a gap between any two."""

    start: np.ndarray
    end: np.ndarray

    @staticmethod
    def none() -> "Extents":
        return Extents(np.empty(0, np.int64), np.empty(0, np.int64))

    @staticmethod
    def of(start: np.ndarray, end: np.ndarray) -> "Extents":
        """The union of ranges in any order, which may be empty."""
        return Extents(*union(start, end))

    def __len__(self) -> int:
        return len(self.start)

    def batches(self) -> Iterator["Extents"]:
        """Itself: the interface of MappedBlocks, which may be too many for one batch."""
        yield self

    @property
    def limit_bytes(self) -> int:
        """The end of the last range."""
        return int(self.end[-1]) if len(self.end) else 0

    @property
    def bytes(self) -> int:
        return int((self.end - self.start).sum())


class MappedBlocks:
    """blocks: whole blocks, in bytes of the target without a mapping, in bytes of the source with one."""

    def __init__(self, blocks: BlockSet | None = None, mapping: Mapping | None = None):
        self._blocks = blocks if blocks is not None else BlockSet()
        self._mapping = mapping
        self._copies = mapping.copies if mapping is not None else 1

    @cached_property
    def _ranges(self) -> int:
        return len(self._blocks)

    def __len__(self) -> int:
        """Number of ranges, without joining those that become neighbors by the mapping."""
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
        # Map the last byte, because the end may be the start of another range.
        last = int(self._mapping.map_bytes(np.array([last_bytes - 1]))[0])
        return last + 1 + (self._copies - 1) * self._mapping.stride_bytes

    def forget(self) -> None:
        """Free the blocks after they were written; len(), bytes and limit_bytes stay valid."""
        len(self), self.limit_bytes
        self._blocks.forget()

    def batches(self) -> Iterator[Extents]:
        """All ranges on the target in ascending order, in batches."""
        for copy in range(self._copies):
            for start, end in self._blocks.ranges():
                if self._mapping is None:
                    yield Extents(start, end)
                    continue
                mapped = self._mapping.map_bytes(start) + copy * self._mapping.stride_bytes
                yield Extents.of(mapped, mapped + end - start)
