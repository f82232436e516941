"""Bursts: what a person experiences as one wait, and whether a planned writer kept up."""

from dataclasses import dataclass, fields

import numpy as np

DEFAULT_GAP_NS = 100_000_000
STRAY_OPS = 16
STRAY_BYTES = 1 << 20


@dataclass(frozen=True)
class BurstTable:
    """One row per burst, in order of its start. `+` lines up bursts of different runs, and joins none."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    ops: np.ndarray
    bytes: np.ndarray

    @classmethod
    def of(cls, rows: list[tuple[int, int, int, int]]) -> "BurstTable":
        columns = np.array(rows, np.int64).reshape(-1, 4).T
        return cls(*(column.copy() for column in columns))

    def __len__(self) -> int:
        return len(self.start_ns)

    def __add__(self, other: "BurstTable") -> "BurstTable":
        return BurstTable(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))

    def __eq__(self, other) -> bool:
        return isinstance(other, BurstTable) and all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    __hash__ = None

    @property
    def strays(self) -> np.ndarray:
        """True where a burst is too small to be an activity of its own."""
        return (self.ops < STRAY_OPS) & (self.bytes < STRAY_BYTES)

    def only(self, mask: np.ndarray) -> "BurstTable":
        return BurstTable(self.start_ns[mask], self.end_ns[mask], self.ops[mask], self.bytes[mask])

    @property
    def makespan_ns(self) -> int:
        """Sum of the bursts' makespans. Idle time between them is not in it."""
        return int((self.end_ns - self.start_ns).sum())


class BurstFinder:
    """Cuts a stream of I/Os of one op class, fed in order of their begin, into bursts.

    A new burst starts where begin - max(earlier reach) > gap. For bursts as they happened, begin is submit
    and reach is complete; for bursts as they were planned, both are due. Rows with a label >= 0 belong to
    the burst of that label, whatever their times: a generated workload knows its bursts.
    """

    def __init__(self, gap_ns: int):
        self._gap_ns = gap_ns
        self._reach_ns = None  # the largest reach of all rows so far
        self._rows = []  # finished chunks of (start, end, ops, bytes) rows; the last row is still open
        self._labelled = {}

    def add(self, begin_ns, reach_ns, end_ns, length_bytes, labels=None) -> None:
        if labels is not None and len(labels) and labels.max() >= 0:
            self._add_labelled(begin_ns, end_ns, length_bytes, labels)
            loose = labels < 0
            begin_ns, reach_ns, end_ns, length_bytes = (
                column[loose] for column in (begin_ns, reach_ns, end_ns, length_bytes))
        if not len(begin_ns):
            return
        reached = np.maximum.accumulate(reach_ns)
        continues = self._reach_ns is not None
        if continues:
            reached = np.maximum(reached, self._reach_ns)
        starts = np.flatnonzero(begin_ns[1:] - reached[:-1] > self._gap_ns) + 1
        joins = continues and int(begin_ns[0]) - self._reach_ns <= self._gap_ns
        self._reach_ns = int(reached[-1])
        cuts = np.concatenate([[0], starts])
        chunk = np.column_stack([np.minimum.reduceat(begin_ns, cuts), np.maximum.reduceat(end_ns, cuts),
                                 np.diff(np.append(cuts, len(begin_ns))), np.add.reduceat(length_bytes, cuts)])
        if joins:
            self._rows[-1][-1] = _joined(self._rows[-1][-1], chunk[0])
            chunk = chunk[1:]
        if len(chunk):
            self._rows.append(chunk)

    def _add_labelled(self, begin_ns, end_ns, length_bytes, labels):
        for label in np.unique(labels[labels >= 0]):
            mine = labels == label
            row = np.array([begin_ns[mine].min(), end_ns[mine].max(), mine.sum(), length_bytes[mine].sum()], np.int64)
            known = self._labelled.get(int(label))
            self._labelled[int(label)] = row if known is None else _joined(known, row)

    def table(self) -> BurstTable:
        rows = np.concatenate([*self._rows, *(row[None] for row in self._labelled.values()),
                               np.empty((0, 4), np.int64)])
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        return BurstTable(*(np.ascontiguousarray(column, np.int64) for column in rows.T))


def _joined(first, second):
    return np.array([min(first[0], second[0]), max(first[1], second[1]), first[2] + second[2], first[3] + second[3]],
                    np.int64)


def late_starts(planned: BurstTable) -> int:
    """How many planned bursts were due before all earlier ones had ended. start is a due time, end a completion."""
    if len(planned) < 2:
        return 0
    return int((np.maximum.accumulate(planned.end_ns)[:-1] > planned.start_ns[1:]).sum())
