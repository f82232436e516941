"""Ranges of bytes as arrays: steps of a preparation, or a batch of MappedBlocks."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


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
        not_empty = end > start
        start, end = start[not_empty], end[not_empty]
        if not len(start):
            return Extents.none()
        order = np.argsort(start, kind="stable")
        start, end = start[order], np.maximum.accumulate(end[order])
        opens = np.concatenate([[True], start[1:] > end[:-1]])
        closes = np.concatenate([opens[1:], [True]])
        return Extents(start[opens], end[closes])

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
