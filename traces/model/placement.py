"""Where a workload reads and writes: sequential streams, offsets used again, and hot regions."""

import numpy as np

from blkreel.common.binning import LogLinearBins
from blkreel.traces.format.schema import OPS

from .workload_model import (
    NO_OFFSET,
    REUSE_CLASSES,
    RUN_CLASSES,
    RUN_IOS,
    RUN_IOS_CLASSES,
    RUN_LENGTHS_BYTES,
    SEQUENTIAL_WINDOW,
    OpModel,
)

# Reuse is measured on all I/Os of at most this many, and of more on a sample of offsets.
MOST_SAMPLED_IOS = 1 << 22
# An I/O of the sample takes 150 bytes while the sample is sorted.
_SAMPLED_IOS_OF_ANY_FILE, _FILE_BYTES_PER_SAMPLED_IO = 1 << 18, 8
_HASH_BITS = 24
_OCTAVES = LogLinearBins(0)
_LEAST_BLOCK_BYTES, _MOST_BLOCKS = 1 << 20, 1 << 22
_MOST_REGIONS = 2048
_NO_OFFSET_CODES = [OPS[name] for name in NO_OFFSET]


def sampled_ios(file_bytes: int) -> int:
    """The most I/Os of a sample for a trace of this size: a small file with many I/Os takes little memory."""
    return min(MOST_SAMPLED_IOS, _SAMPLED_IOS_OF_ANY_FILE + file_bytes // _FILE_BYTES_PER_SAMPLED_IO)


class Placement:
    """Takes I/Os in order of submission.

    capacity_bytes: no I/O ends behind it. ios: how many there are in all. most_sampled_ios: of more I/Os, reuse is
    measured on so many.
    """

    def __init__(self, capacity_bytes: int, ios: int, most_sampled_ios: int = MOST_SAMPLED_IOS):
        blocks_bytes = _LEAST_BLOCK_BYTES
        while capacity_bytes > blocks_bytes * _MOST_BLOCKS:
            blocks_bytes *= 2
        self.block_bytes = blocks_bytes
        blocks = -(-capacity_bytes // blocks_bytes) + 1
        count_type = np.int32 if ios < 1 << 31 else np.int64
        self._accesses: np.ndarray = np.zeros(blocks, count_type)
        self._covered: np.ndarray = np.zeros(blocks + 1, count_type)
        self._tails = {code: np.full(SEQUENTIAL_WINDOW, -1, np.int64) for code in OPS.values()}
        self._tail_runs = {code: np.zeros((2, SEQUENTIAL_WINDOW), np.int64) for code in OPS.values()}
        self.open_ends = np.zeros((len(OPS), SEQUENTIAL_WINDOW), np.int64)
        # Sequential I/Os by the class of their length and that of the run that they continue.
        self.continued_runs = np.zeros((len(OPS), len(RUN_LENGTHS_BYTES) + 1, RUN_CLASSES), np.int64)
        self.located = np.zeros(len(OPS), np.int64)
        self._threshold = np.uint64(min(1.0, most_sampled_ios / max(ios, 1)) * (1 << _HASH_BITS))
        self._sample: list[tuple[np.ndarray, ...]] = []
        self._rows = 0
        self.aligned = {512: 0, 4096: 0}
        self.random = 0

    def add(self, op: np.ndarray, offset_bytes: np.ndarray, length_bytes: np.ndarray) -> np.ndarray:
        """Mask of the sequential I/Os: those that begin where one of the last I/Os of the same operation ended."""
        located = (length_bytes > 0) & ~np.isin(op, _NO_OFFSET_CODES)
        sequential, continued = np.zeros(len(op), bool), np.zeros(len(op), bool)
        for code in np.unique(op[located]).tolist():
            rows = np.flatnonzero(located & (op == code))
            sequential[rows], continued[rows] = self._sequential(code, offset_bytes[rows], length_bytes[rows])
            self.located[code] += len(rows)
        jumps = located & ~sequential
        self.random += int(jumps.sum())
        for step in self.aligned:
            self.aligned[step] += int((offset_bytes[jumps] % step == 0).sum())
        self._sample_rows(op, offset_bytes, located, sequential, continued)
        self._cover(offset_bytes[located], length_bytes[located])
        return sequential

    def _sequential(self, code: int, offset_bytes: np.ndarray, length_bytes: np.ndarray
                    ) -> tuple[np.ndarray, np.ndarray]:
        """Masks of the I/Os that continue one, and of those that one of this piece continues.

        Counts by how many ends that are still open, of later I/Os, lie between an I/O and the one it continues.
        """
        window, count = SEQUENTIAL_WINDOW, len(offset_bytes)
        ends = np.concatenate([self._tails[code], offset_bytes + length_bytes])
        lags = np.zeros(count, np.int64)
        for lag in range(window, 0, -1):
            lags[ends[window - lag:window - lag + count] == offset_bytes] = lag
        rows = np.flatnonzero(lags)
        # The position of the I/O that continues each one; one that none continues stays open.
        continued = np.full(window + count, window + count)
        continued[:window][self._tails[code] < 0] = -1
        parents, first = np.unique(window + rows - lags[rows], return_index=True)
        continued[parents] = window + rows[first]
        open_between = np.zeros(len(rows), np.int64)
        for lag in range(1, window):
            later = (lags[rows] > lag) & (continued[window + rows - lag] >= window + rows)
            open_between += later
        ends[continued < window + count] = -1
        self._tails[code] = ends[-window:]
        self._count_runs(code, np.searchsorted(RUN_LENGTHS_BYTES, length_bytes), rows, lags)
        self.open_ends[code] += np.bincount(open_between, minlength=window)
        return lags > 0, continued[window:] < window + count

    def _count_runs(self, code: int, length_class: np.ndarray, rows: np.ndarray, lags: np.ndarray) -> None:
        """Counts sequential I/Os, the rows, by the class of their length and that of the run that they continue."""
        tail_classes, tail_ios = self._tail_runs[code]
        window, count = SEQUENTIAL_WINDOW, len(lags)
        parent, ios = np.full(window + count, -1), np.ones(window + count, np.int64)
        parent[window + rows] = window + rows - lags[rows]
        ios[:window] = tail_ios
        ios, _ = resolved(np.zeros(window + count, np.int64), parent, ios)
        classes = np.concatenate([tail_classes, length_class])
        self._tail_runs[code] = np.stack([classes[-window:], ios[-window:]])
        continued = window + rows - lags[rows]
        run_class = classes[continued] * RUN_IOS_CLASSES + np.searchsorted(RUN_IOS, ios[continued])
        shape = self.continued_runs[code].shape
        pairs = np.bincount(length_class[rows] * RUN_CLASSES + run_class, minlength=shape[0] * shape[1])
        self.continued_runs[code] += pairs.reshape(shape)

    def _sample_rows(self, op: np.ndarray, offset_bytes: np.ndarray, located: np.ndarray,
                     sequential: np.ndarray, continued: np.ndarray) -> None:
        # All I/Os at a sampled offset: its reuse distances are exact (SHARDS, Waldspurger et al., FAST 2015).
        hashed = (offset_bytes.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - _HASH_BITS)
        rows = np.flatnonzero(located & (hashed < self._threshold))
        number = self._rows + np.cumsum(located)
        self._rows = int(number[-1])
        self._sample.append((offset_bytes[rows], number[rows], op[rows], sequential[rows], continued[rows]))

    def _cover(self, offset_bytes: np.ndarray, length_bytes: np.ndarray) -> None:
        first = offset_bytes // self.block_bytes
        for counts, blocks, sign in ((self._accesses, first, 1), (self._covered, first, 1),
                                     (self._covered, (offset_bytes + length_bytes - 1) // self.block_bytes + 1, -1)):
            numbers, added = np.unique(blocks, return_counts=True)
            counts[numbers] += sign * added

    def footprint_bytes(self) -> int:
        """Of all blocks that an I/O touches."""
        covers = np.cumsum(self._covered, dtype=self._covered.dtype)
        return int((covers > 0).sum()) * self.block_bytes

    def hot_share(self) -> float | None:
        """Share of the I/Os that begin in the tenth of the touched blocks where most begin; None without any."""
        counts = np.sort(self._accesses[self._accesses > 0])[::-1]
        return float(counts[:-(-len(counts) // 10)].sum() / counts.sum()) if len(counts) else None

    def reuse(self) -> tuple[float | None, dict[int, OpModel]]:
        """The share of I/Os that begin at the offset of an earlier I/O, and of each operation where its I/Os lie."""
        offset_bytes, row, op, sequential, continued = (np.concatenate(part)
                                                        for part in zip(*self._sample, strict=True))
        if not len(row):
            return None, {}
        order = np.argsort(offset_bytes, kind="stable")
        again = np.diff(offset_bytes[order], prepend=-1) == 0
        distance = np.zeros(len(row), np.int64)
        distance[order] = np.where(again, np.diff(row[order], prepend=0), 0)
        later = np.zeros(len(row), bool)
        later[order[:-1]] = again[1:] & ~sequential[order[1:]]
        power = np.minimum(_OCTAVES.of(distance) - 1, REUSE_CLASSES - 1)
        placements = {}
        for code in np.unique(op).tolist():
            jumps = (op == code) & ~sequential
            reused, fresh = jumps & (distance > 0), jumps & (distance == 0)
            counts = np.bincount(power[reused], minlength=REUSE_CLASSES)
            region_bytes, regions = _regions(offset_bytes[fresh], later[fresh])
            placements[code] = OpModel(
                reuse_share=_share(reused, jumps & ~continued), reuse_share_continued=_share(reused, jumps & continued),
                reuse_distances=counts.tolist(), sequential_again_share=_share(later, (op == code) & sequential),
                reused_again_share=_share(later, reused), region_bytes=region_bytes, regions=regions)
        return float((distance > 0).mean()), placements


def _share(rows: np.ndarray, among: np.ndarray) -> float:
    return round(float(rows[among].mean()), 6) if among.any() else 0.0


def _regions(offset_bytes: np.ndarray, again: np.ndarray) -> tuple[int, list[list[int]]]:
    """The size of regions, the least that needs no more than _MOST_REGIONS of them, the accesses to each, and how many
    of their offsets are accessed again."""
    region_bytes = _LEAST_BLOCK_BYTES
    numbers, at = np.unique(offset_bytes // region_bytes, return_inverse=True)
    counts, repeated = np.bincount(at, minlength=len(numbers)), np.bincount(at, again, len(numbers))
    while len(numbers) > _MOST_REGIONS:
        region_bytes *= 2
        numbers, at = np.unique(numbers // 2, return_inverse=True)
        counts, repeated = np.bincount(at, counts), np.bincount(at, repeated)
    return region_bytes, np.column_stack([numbers, counts, repeated]).astype(np.int64).tolist()


def resolved(base: np.ndarray, parent: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The offset of each I/O, its own base or that of its parent plus a step, and the first I/O it follows from.

    Each pass halves the chains.
    """
    parent, offset, root = parent.copy(), base + step, np.arange(len(base))
    while (linked := np.flatnonzero(parent >= 0)).size:
        up = parent[linked]
        offset[linked] += offset[up]
        root[linked] = root[up]
        parent[linked] = parent[up]
    return offset, root
