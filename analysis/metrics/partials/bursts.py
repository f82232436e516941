"""Bursts: I/Os that a person experiences as one wait. Planned bursts show whether a writer kept up.

native/bursts.c computes them: a new burst starts where begin - max(earlier reach) > gap. For measured bursts, begin is
submit and reach is complete; for planned bursts, both are due. The idle time that a run removed before a row
(idle_removed_ns) is added to both, so that a replay with shorter idle time has the bursts of its trace. Times with this
addition are called uncut. Rows with a label >= 0 belong to the burst of that label at any time: a generated workload
labels its bursts.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .record import Record

DEFAULT_GAP_NS = 100_000_000
STRAY_OPS = 16
STRAY_BYTES = 1 << 20

_COLUMNS = ("start_ns", "end_ns", "ops", "bytes", "opened_ns", "label", "uncut_start_ns", "uncut_end_ns")
_NONE = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class BurstTable(Record):
    """One row per burst, in order of its start. `+` concatenates bursts of different runs and joins none.

    start_ns and end_ns as in the run. opened_ns: the uncut begin of its first row, which differs from its uncut start
    only if begins are not in order. label: -1 of a burst by time. reach_ns: the latest uncut reach of those in one run,
    None without.

    A trace without idle time removed and without labels has four columns that repeat others; they share their memory.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    ops: np.ndarray
    bytes: np.ndarray
    opened_ns: np.ndarray
    label: np.ndarray
    uncut_start_ns: np.ndarray
    uncut_end_ns: np.ndarray
    reach_ns: int | None = None

    def __post_init__(self) -> None:
        for name, like in (("opened_ns", self.start_ns), ("uncut_start_ns", self.start_ns),
                           ("uncut_end_ns", self.end_ns), ("label", _no_labels(len(self)))):
            if np.array_equal(getattr(self, name), like):
                object.__setattr__(self, name, like)

    @classmethod
    def of(cls, rows: npt.ArrayLike, reach_ns: int | None = None) -> "BurstTable":
        """From rows of start, end, ops and bytes alone, or of all columns."""
        table = np.array(rows, np.int64)
        if not table.size:
            table = np.empty((0, len(_COLUMNS)), np.int64)
        elif table.shape[1] == 4:
            table = np.column_stack([table, table[:, 0], np.full(len(table), -1), table[:, :2]])
        (start_ns, end_ns, ops, length_bytes, opened_ns, label, uncut_start_ns,
         uncut_end_ns) = (column.copy() for column in table.T)
        return cls(start_ns, end_ns, ops, length_bytes, opened_ns, label, uncut_start_ns, uncut_end_ns, reach_ns)

    @classmethod
    def of_native(cls, reach_ns: int, rows: np.ndarray) -> "BurstTable":
        """From metrics_bursts() of native/metrics.h; rows are copied."""
        opened, uncut_start, uncut_end, start, end, ops, length, label = rows.T
        is_sorted = bool((start[1:] > start[:-1]).all())
        order: np.ndarray | slice = slice(None) if is_sorted else np.lexsort((label, end, start))

        def column(values: np.ndarray, like: np.ndarray | None = None) -> np.ndarray:
            ordered = values[order]
            return like if like is not None and np.array_equal(ordered, like) else np.array(ordered)

        start_ns, end_ns = column(start), column(end)
        return cls(start_ns, end_ns, column(ops), column(length), column(opened, start_ns),
                   column(label, _no_labels(len(rows))), column(uncut_start, start_ns), column(uncut_end, end_ns),
                   None if reach_ns == _NONE else reach_ns)

    def rows(self) -> np.ndarray:
        return np.column_stack([getattr(self, name) for name in _COLUMNS])

    def __len__(self) -> int:
        return len(self.start_ns)

    def __add__(self, other: "BurstTable") -> "BurstTable":
        columns: list[Any] = [np.concatenate([getattr(table, name) for table in (self, other)]) for name in _COLUMNS]
        return BurstTable(*columns)

    def join(self, later: "BurstTable", gap_ns: int) -> "BurstTable":
        """Join two consecutive parts of one run."""
        before, after = self.rows(), later.rows()
        labeled = np.concatenate([rows[rows[:, 5] >= 0] for rows in (before, after)])
        before, after = (rows[rows[:, 5] < 0] for rows in (before, after))
        before, after = (rows[np.argsort(rows[:, 4], kind="stable")] for rows in (before, after))
        if self.reach_ns is not None:
            # I/Os outstanding at the cut bridge gaps that end bursts in the later part alone.
            joins = int((after[:, 4] - self.reach_ns <= gap_ns).sum())
            if joins:
                before[-1] = _joined(np.concatenate([before[-1:], after[:joins]]))
                after = after[joins:]
        order = np.argsort(labeled[:, 5], kind="stable")
        cuts = np.flatnonzero(np.diff(labeled[order, 5], prepend=-1))
        groups = [_joined(rows)[None] for rows in np.split(labeled[order], cuts[1:])] if len(labeled) else []
        reaches = [table.reach_ns for table in (self, later) if table.reach_ns is not None]
        rows = np.concatenate([before, after, *groups])
        return BurstTable.of(rows[np.lexsort((rows[:, 5], rows[:, 1], rows[:, 0]))], max(reaches, default=None))


    @property
    def strays(self) -> np.ndarray:
        """True where a burst is too small to be an activity of its own."""
        return (self.ops < STRAY_OPS) & (self.bytes < STRAY_BYTES)

    def only(self, mask: np.ndarray) -> "BurstTable":
        columns: list[Any] = [getattr(self, name)[mask] for name in _COLUMNS]
        return BurstTable(*columns)

    @property
    def makespan_ns(self) -> int:
        """Sum of the bursts' makespans. Idle time between them is not in it."""
        return int((self.end_ns - self.start_ns).sum())


def _no_labels(count: int) -> np.ndarray:
    return np.broadcast_to(np.int64(-1), count)


def _joined(rows: np.ndarray) -> np.ndarray:
    """The row of several bursts as one. The first row is the earliest."""
    return np.array([rows[:, 0].min(), rows[:, 1].max(), rows[:, 2].sum(), rows[:, 3].sum(), rows[0, 4], rows[0, 5],
                     rows[:, 6].min(), rows[:, 7].max()], np.int64)


def late_starts(planned: BurstTable) -> int:
    """Number of planned bursts due before all earlier ones had ended. start is a due time, end a completion.

    By uncut times: a drive that needs part of the idle time of the trace is not late if a run leaves that time out.
    """
    if len(planned) < 2:
        return 0
    return int((np.maximum.accumulate(planned.uncut_end_ns)[:-1] > planned.uncut_start_ns[1:]).sum())
