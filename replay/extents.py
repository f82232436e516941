"""Sets of byte ranges: what a trace touches, and what must be written before it runs."""

from dataclasses import dataclass

import numpy as np

_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class Extents:
    """Disjoint ranges [start, end) of bytes in ascending order; between any two of them lies a gap."""

    start: np.ndarray
    end: np.ndarray

    @staticmethod
    def none() -> "Extents":
        return Extents(np.empty(0, np.int64), np.empty(0, np.int64))

    @staticmethod
    def of(start: np.ndarray, end: np.ndarray) -> "Extents":
        """The union of ranges in any order; empty ones count for nothing."""
        some = end > start
        start, end = start[some], end[some]
        if not len(start):
            return Extents.none()
        order = np.argsort(start, kind="stable")
        start, end = start[order], np.maximum.accumulate(end[order])
        opens = np.concatenate([[True], start[1:] > end[:-1]])
        closes = np.concatenate([opens[1:], [True]])
        return Extents(start[opens], end[closes])

    def __len__(self) -> int:
        return len(self.start)

    @property
    def bytes(self) -> int:
        return int((self.end - self.start).sum())

    @property
    def limit_bytes(self) -> int:
        """The end of the last range: the size that a drive must have at least."""
        return int(self.end[-1]) if len(self) else 0

    def union(self, other: "Extents") -> "Extents":
        return Extents.of(np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end]))

    def minus(self, other: "Extents") -> "Extents":
        """What lies in these and not in the others."""
        gap_start = np.concatenate([[_LEAST], other.end])
        gap_end = np.concatenate([other.start, [_GREATEST]])
        first = np.searchsorted(gap_end, self.start, "right")
        last = np.searchsorted(gap_start, self.end, "left")
        count = last - first
        mine = np.repeat(np.arange(len(self)), count)
        gap = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
        return Extents.of(np.maximum(self.start[mine], gap_start[gap]), np.minimum(self.end[mine], gap_end[gap]))

    def aligned(self, block_bytes: int) -> "Extents":
        """The same, grown outward to whole blocks."""
        return Extents.of(self.start // block_bytes * block_bytes, -(-self.end // block_bytes) * block_bytes)
