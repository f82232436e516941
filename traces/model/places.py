"""Draws where the I/Os of a workload model begin, and how long they are."""

import numpy as np

from blkreel.traces.format.schema import OPS

from .placement import resolved
from .workload_model import (
    NO_OFFSET,
    REUSE_CLASSES,
    RUN_CLASSES,
    RUN_IOS,
    RUN_IOS_CLASSES,
    RUN_LENGTHS_BYTES,
    SEQUENTIAL_WINDOW,
    WorkloadModel,
)

_HISTORY_IOS = 1 << REUSE_CLASSES
_GOLDEN = 0.6180339887498949
# The class of runs of so many I/Os; longer ones are of the last class.
_RUN_IOS_CLASS = np.searchsorted(RUN_IOS, np.arange(RUN_IOS[-1] + 2)).tolist()
# Between two classes of runs: their difference in length, then in I/Os.
_DIFFERENCES = [[abs(wanted // RUN_IOS_CLASSES - candidate // RUN_IOS_CLASSES) * RUN_IOS_CLASSES
                 + abs(wanted % RUN_IOS_CLASSES - candidate % RUN_IOS_CLASSES) for candidate in range(RUN_CLASSES)]
                for wanted in range(RUN_CLASSES)]


class Places:
    """Draws offsets and lengths. An offset is in free space, that of an earlier I/O, or the end of an earlier I/O."""

    def __init__(self, model: WorkloadModel, random: np.random.Generator):
        self._model, self._random = model, random
        self._history = np.empty(0, np.int64)
        self._again = np.empty(0, bool)  # whether a later I/O may begin at the offset
        self._open = {name: _OpenEnds() for name in model.ops}
        self._fresh = {name: np.zeros(len(op.regions), np.int64) for name, op in model.ops.items()}
        self._space = FreeSpace(model.capacity_bytes, model.alignment_bytes)

    def draw(self, op: np.ndarray, sequential: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Offsets and lengths of I/Os."""
        offset_bytes, length_bytes = np.zeros(len(op), np.int64), np.zeros(len(op), np.int64)
        located = np.flatnonzero(~np.isin(op, [OPS[name] for name in NO_OFFSET]))
        offset_bytes[located], length_bytes[located] = self._located(op[located], sequential[located])
        return offset_bytes, length_bytes

    def _located(self, op: np.ndarray, sequential: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        batch = _Batch(len(op))
        rows_of = {name: np.flatnonzero(op == OPS[name]) for name in self._model.ops}
        for name, rows in rows_of.items():
            settings = self._model.ops[name]
            for kind, table in ((False, settings.sizes_random), (True, settings.sizes_sequential)):
                chosen = rows[sequential[rows] == kind]
                batch.length_bytes[chosen] = _drawn(table, len(chosen), self._random)
            self._continue(name, rows, sequential[rows], batch)
            continues = (batch.parent[rows] >= 0) | batch.continues_earlier[rows]
            batch.again_share[rows[continues]] = settings.sequential_again_share
            self._jump(name, rows[~continues], batch)
        again = np.concatenate([self._again, self._random.random(len(op)) < batch.again_share])
        run_bytes = batch.run_bytes()
        self._place(run_bytes, batch)
        self._reuse(np.flatnonzero(batch.reused), op, again, batch)
        offset_bytes, _ = resolved(batch.base, batch.parent, batch.step)
        capacity_bytes = self._model.capacity_bytes
        offset_bytes = offset_bytes % capacity_bytes
        offset_bytes = np.minimum(offset_bytes, np.maximum(capacity_bytes - batch.length_bytes, 0))
        for row in np.flatnonzero(batch.reused).tolist():
            self._space.use(int(offset_bytes[row]), int(offset_bytes[row] + run_bytes[row]))
        for ends in self._open.values():
            ends.settle(offset_bytes + batch.length_bytes)
        self._history = np.concatenate([self._history, offset_bytes])[-_HISTORY_IOS:]
        self._again = again[-_HISTORY_IOS:]
        return offset_bytes, batch.length_bytes

    def _continue(self, name: str, rows: np.ndarray, sequential: np.ndarray, batch: "_Batch") -> None:
        """Each sequential I/O continues one that no other continues, if there is one."""
        op = self._model.ops[name]
        between = indexes(op.open_ends, len(rows), self._random)
        length_class = np.searchsorted(RUN_LENGTHS_BYTES, batch.length_bytes[rows])
        continued_run = np.zeros(len(rows), np.int64)
        for number, counts in enumerate(op.continued_runs):
            chosen = sequential & (length_class == number)
            continued_run[chosen] = indexes(counts, int(chosen.sum()), self._random)
        self._open[name].link(rows, sequential, (length_class, continued_run, between), batch)

    def _jump(self, name: str, rows: np.ndarray, batch: "_Batch") -> None:
        """Chooses which I/Os that are not sequential begin at an earlier offset, and the regions of the others."""
        op, random = self._model.ops[name], self._random
        share = np.where(batch.continued[rows], op.reuse_share_continued, op.reuse_share)
        chosen = (random.random(len(rows)) < share) & (rows + len(self._history) > 0)
        batch.reused[rows[chosen]] = True
        batch.again_share[rows[chosen]] = op.reused_again_share
        fresh = rows[~chosen]
        batch.fresh[fresh] = True
        if not op.regions:
            return
        numbers = indexes([count for _, count, _ in op.regions], len(fresh), random)
        batch.again_share[fresh] = np.array([again / max(count, 1) for _, count, again in op.regions])[numbers]
        batch.region_bytes[fresh] = op.region_bytes
        batch.base[fresh] = self._wanted(name, numbers)

    def _wanted(self, name: str, numbers: np.ndarray) -> np.ndarray:
        """An offset in each region, by position in the table of regions, that repeats only when all were used."""
        op, alignment_bytes = self._model.ops[name], self._model.alignment_bytes
        order = np.argsort(numbers, kind="stable")
        counts = np.bincount(numbers, minlength=len(op.regions))
        used = np.empty(len(numbers), np.int64)
        used[order] = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
        used += self._fresh[name][numbers]
        self._fresh[name] += counts
        region = np.array(op.regions, np.int64)[:, 0][numbers]
        # The number of offsets is a power of two: an odd step reaches each of them once.
        offsets = max(op.region_bytes // alignment_bytes, 1)
        position = ((used + region) * (round(offsets * _GOLDEN) | 1)) % offsets
        offset_bytes: np.ndarray = region * op.region_bytes + position * alignment_bytes
        return offset_bytes

    def _place(self, run_bytes: np.ndarray, batch: "_Batch") -> None:
        """Moves each new run to free space near its wanted offset, the longest first: it fits in the fewest places."""
        for row in np.flatnonzero(batch.continues_earlier).tolist():
            self._space.use(int(batch.base[row]), int(batch.base[row] + run_bytes[row]))
        rows = np.flatnonzero(batch.fresh)
        rows = rows[np.argsort(-run_bytes[rows], kind="stable")]
        batch.base[rows] = self._space.allocate(batch.base[rows], batch.region_bytes[rows], run_bytes[rows])

    def _reuse(self, rows: np.ndarray, op: np.ndarray, again: np.ndarray, batch: "_Batch") -> None:
        """Places I/Os at the offset of the last I/O, at least a drawn distance back, whose offset is accessed again."""
        past = len(self._history)
        power = np.zeros(len(rows), np.int64)
        for name, settings in self._model.ops.items():
            own = op[rows] == OPS[name]
            power[own] = indexes(settings.reuse_distances, int(own.sum()), self._random)
        distance = np.exp2(power + self._random.random(len(rows))).astype(np.int64)
        target = np.maximum(past + rows - distance, 0)
        last_again = np.maximum.accumulate(np.where(again, np.arange(len(again)), -1))[target]
        target = np.where(last_again >= 0, last_again, target) - past
        inside = target >= 0
        batch.parent[rows[inside]] = target[inside]
        batch.base[rows[~inside]] = self._history[target[~inside]]


class _Batch:
    """Columns of the I/Os of one batch.

    base: the offset where a run begins. parent: the I/O from whose offset that of this one follows, or −1; step: how
    far behind. continued: whether a sequential I/O of the batch does so. continues_earlier, reused, fresh: how a run
    begins: behind an I/O of an earlier batch, at the offset of an earlier I/O, or in free space of a region.
    """

    def __init__(self, count: int):
        self.base, self.step, self.length_bytes = (np.zeros(count, np.int64) for _ in range(3))
        self.parent = np.full(count, -1, np.int64)
        self.region_bytes = np.ones(count, np.int64)
        self.again_share = np.zeros(count)
        self.continued, self.continues_earlier, self.reused, self.fresh = (np.zeros(count, bool) for _ in range(4))

    def run_bytes(self) -> np.ndarray:
        """The length of the run that each I/O begins, 0 for others."""
        relative, root = resolved(np.zeros(len(self.base), np.int64), self.parent, self.step)
        run_bytes = np.zeros(len(self.base), np.int64)
        np.maximum.at(run_bytes, root, relative + self.length_bytes)
        return run_bytes


class _OpenEnds:
    """The last I/Os of an operation that no other continues, the latest last: row of the batch, or ~end of one before.

    Each has the class of its length and the number of I/Os of its run, and its number among the I/Os.
    """

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._length_classes: list[int] = []
        self._run_ios: list[int] = []
        self._numbers: list[int] = []
        self._count = 0

    def link(self, rows: np.ndarray, sequential: np.ndarray, draws: tuple[np.ndarray, np.ndarray, np.ndarray],
             batch: _Batch) -> None:
        """draws: of each I/O the class of its length, the class of run to continue, and the open ends between both.

        An end of the wanted class is continued, if there is none one of the most similar class; of several the one at
        the wanted position.
        """
        ends, length_classes, run_ios, numbers = self._rows, self._length_classes, self._run_ios, self._numbers
        children, parents, earlier, bases = [], [], [], []
        number = self._count
        for row, continues, length_class, wanted, between in zip(
                rows.tolist(), sequential.tolist(), *(part.tolist() for part in draws), strict=True):
            while numbers and numbers[0] < number - SEQUENTIAL_WINDOW:
                del ends[0], length_classes[0], run_ios[0], numbers[0]
            ios = 1
            if continues and ends:
                at = max(len(ends) - 1 - between, 0)
                if length_classes[at] * RUN_IOS_CLASSES + _RUN_IOS_CLASS[run_ios[at]] != wanted:
                    differences = _DIFFERENCES[wanted]
                    at = min(range(len(ends)), key=lambda index: (
                        differences[length_classes[index] * RUN_IOS_CLASSES + _RUN_IOS_CLASS[run_ios[index]]],
                        abs(index - at)))
                begin = ends.pop(at)
                ios = min(run_ios.pop(at) + 1, len(_RUN_IOS_CLASS) - 1)
                del length_classes[at], numbers[at]
                if begin >= 0:
                    children.append(row)
                    parents.append(begin)
                else:
                    earlier.append(row)
                    bases.append(~begin)
            ends.append(row)
            length_classes.append(length_class)
            run_ios.append(ios)
            numbers.append(number)
            number += 1
        self._count = number
        batch.parent[children] = parents
        batch.step[children] = batch.length_bytes[parents]
        batch.continued[parents] = True
        batch.base[earlier] = bases
        batch.continues_earlier[earlier] = True

    def settle(self, end_bytes: np.ndarray) -> None:
        """Keeps the ends beyond the batch. end_bytes: of each I/O of the batch."""
        self._rows = [~int(end_bytes[row]) if row >= 0 else row for row in self._rows]


def _drawn(table: list[list[int]], count: int, random: np.random.Generator) -> np.ndarray:
    """Values of a table of [value, weight]."""
    if not count or not table:
        return np.zeros(count, np.int64)
    values, weights = np.array(table, np.int64).T
    drawn: np.ndarray = values[indexes(weights, count, random)]
    return drawn


def indexes(weights: "list[int] | np.ndarray", count: int, random: np.random.Generator) -> np.ndarray:
    """Positions in a list of weights, in random order; each as often as its weight says, to the next integer."""
    totals = np.cumsum(weights)
    if not count or not len(totals) or not totals[-1]:
        return np.zeros(count, np.int64)
    points = (np.arange(count) + random.random()) * (totals[-1] / count)
    drawn: np.ndarray = np.searchsorted(totals, np.minimum(points, totals[-1] - 0.5), "right")
    return random.permutation(drawn)


_MOST_UNITS = 1 << 25
# Bounds of a search: ranges passed, and units outside the wanted region.
_MOST_STEPS = 128
_MOST_DISTANT_UNITS = 1 << 18
_USED, _FREE = b"\1", b"\0"


class FreeSpace:
    """Finds free ranges in memory of at most 32 MiB: one byte for each unit of unit_bytes, a power of two."""

    def __init__(self, capacity_bytes: int, unit_bytes: int):
        self.unit_bytes = unit_bytes
        while capacity_bytes > self.unit_bytes * _MOST_UNITS:
            self.unit_bytes *= 2
        self._units = -(-capacity_bytes // self.unit_bytes)
        self._used = bytearray(self._units)
        self._full: dict[int, int] = {}  # by begin of a region: the least number of units for which none is left

    def use(self, begin_bytes: int, end_bytes: int) -> None:
        """Mark the units of a range as used; what lies behind the capacity is left out."""
        begin, end = begin_bytes // self.unit_bytes, min(-(-end_bytes // self.unit_bytes), self._units)
        if begin < end:
            self._used[begin:end] = _USED * (end - begin)

    def allocate(self, near_bytes: np.ndarray, region_bytes: np.ndarray, length_bytes: np.ndarray) -> np.ndarray:
        """Use a free range near each wanted begin, one after the other, and return the begins.

        A range is the first behind the wanted begin in its region, else in the region, else outside. Where a bounded
        search finds none, it is the wanted one, which overlaps others. Positions within a unit stay.
        """
        used, all_units = self._used, self._units
        position_bytes = near_bytes % self.unit_bytes
        units_needed = -(-(length_bytes + position_bytes) // self.unit_bytes)
        begins = []
        for near, units, row in zip((near_bytes // self.unit_bytes).tolist(), units_needed.tolist(),
                                    range(len(near_bytes)), strict=True):
            begin = near
            if used.find(_USED, near, near + units) >= 0 or near + units > all_units:
                begin = self._nearest(near, int(near_bytes[row] // region_bytes[row] * region_bytes[row]),
                                      int(region_bytes[row]), units)
            end = min(begin + units, all_units)
            used[begin:end] = _USED * (end - begin)
            begins.append(begin)
        begin_bytes: np.ndarray = np.array(begins, np.int64) * self.unit_bytes + position_bytes
        return begin_bytes

    def _nearest(self, near: int, region: int, region_bytes: int, units: int) -> int:
        begin, end = region // self.unit_bytes, -(-(region + region_bytes) // self.unit_bytes)
        if units >= self._full.get(region, self._units + 1):
            return near
        for first, last in ((near, end), (begin, near), (end, end + _MOST_DISTANT_UNITS),
                            (max(begin - _MOST_DISTANT_UNITS, 0), begin)):
            at = self._first_free(first, min(last, self._units - units + 1), units)
            if at is not None:
                return at
        self._full[region] = units
        return near

    def _first_free(self, at: int, last: int, units: int) -> int | None:
        """The first of so many free units, begun before `last`."""
        for _ in range(_MOST_STEPS):
            if at >= last:
                break
            # The last obstacle, so that one step passes over all of them.
            obstacle = self._used.rfind(_USED, at, at + units)
            if obstacle < 0:
                return at
            free = self._used.find(_FREE, obstacle + 1, last)
            if free < 0:
                break
            at = free + 1  # not where a range ends: an I/O there would continue it
        return None
