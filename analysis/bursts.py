"""Bursts: what a person experiences as one wait, and whether a planned writer kept up.

native/bursts.c finds them: a new burst starts where begin - max(earlier reach) > gap. For bursts as they happened,
begin is submit and reach is complete; for bursts as they were planned, both are due. Rows with a label >= 0 belong to
the burst of that label, whatever their times: a generated workload knows its bursts.
"""

from dataclasses import dataclass

import numpy as np

DEFAULT_GAP_NS = 100_000_000
STRAY_OPS = 16
STRAY_BYTES = 1 << 20

_COLUMNS = ("start_ns", "end_ns", "ops", "bytes", "opened_ns", "label")
_NONE = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class BurstTable:
    """One row per burst, in order of its start. `+` lines up bursts of different runs, and joins none.

    opened_ns: the begin of the row with which it began, which is its start unless rows came out of the order of their
    begins. label: -1 where it was found by time. reach_ns: the latest reach of all of these in one run, None without.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    ops: np.ndarray
    bytes: np.ndarray
    opened_ns: np.ndarray
    label: np.ndarray
    reach_ns: int | None = None

    @classmethod
    def of(cls, rows, reach_ns: int | None = None) -> "BurstTable":
        """From rows of start, end, ops, bytes, and where known opened and label."""
        rows = np.array(rows, np.int64)
        if not rows.size:
            rows = np.empty((0, 6), np.int64)
        elif rows.shape[1] == 4:
            rows = np.column_stack([rows, rows[:, 0], np.full(len(rows), -1)])
        return cls(*(column.copy() for column in rows.T), reach_ns)

    @classmethod
    def of_native(cls, numbers: np.ndarray) -> "BurstTable":
        """From PART_BURSTS of native/metrics.h."""
        opened_ns, start_ns, end_ns, ops, length_bytes, label = numbers[1:].reshape(-1, 6).T
        rows = np.column_stack([start_ns, end_ns, ops, length_bytes, opened_ns, label])
        return cls._in_order(rows, None if numbers[0] == _NONE else int(numbers[0]))

    @classmethod
    def _in_order(cls, rows, reach_ns):
        return cls.of(rows[np.lexsort((rows[:, 5], rows[:, 1], rows[:, 0]))], reach_ns)

    def rows(self) -> np.ndarray:
        return np.column_stack([getattr(self, name) for name in _COLUMNS])

    def __len__(self) -> int:
        return len(self.start_ns)

    def __add__(self, other: "BurstTable") -> "BurstTable":
        return BurstTable.of(np.concatenate([self.rows(), other.rows()]))

    def join(self, later: "BurstTable", gap_ns: int) -> "BurstTable":
        """The bursts of two parts of one run that follow each other."""
        mine, theirs = self.rows(), later.rows()
        labelled = np.concatenate([rows[rows[:, 5] >= 0] for rows in (mine, theirs)])
        mine, theirs = (rows[rows[:, 5] < 0] for rows in (mine, theirs))
        mine, theirs = (rows[np.argsort(rows[:, 4], kind="stable")] for rows in (mine, theirs))
        if self.reach_ns is not None:
            # What was outstanding bridges gaps that the later part had to take for ends.
            joins = int((theirs[:, 4] - self.reach_ns <= gap_ns).sum())
            if joins:
                mine[-1] = _joined(np.concatenate([mine[-1:], theirs[:joins]]))
                theirs = theirs[joins:]
        order = np.argsort(labelled[:, 5], kind="stable")
        cuts = np.flatnonzero(np.diff(labelled[order, 5], prepend=-1))
        labelled = [_joined(rows)[None] for rows in np.split(labelled[order], cuts[1:])] if len(labelled) else []
        reaches = [each.reach_ns for each in (self, later) if each.reach_ns is not None]
        return BurstTable._in_order(np.concatenate([mine, theirs, *labelled]), max(reaches, default=None))

    def __eq__(self, other) -> bool:
        return (isinstance(other, BurstTable) and self.reach_ns == other.reach_ns
                and np.array_equal(self.rows(), other.rows()))

    __hash__ = None

    @property
    def strays(self) -> np.ndarray:
        """True where a burst is too small to be an activity of its own."""
        return (self.ops < STRAY_OPS) & (self.bytes < STRAY_BYTES)

    def only(self, mask: np.ndarray) -> "BurstTable":
        return BurstTable.of(self.rows()[mask])

    @property
    def makespan_ns(self) -> int:
        """Sum of the bursts' makespans. Idle time between them is not in it."""
        return int((self.end_ns - self.start_ns).sum())


def _joined(rows):
    """One burst of several, the first of which is named first."""
    return np.array([rows[:, 0].min(), rows[:, 1].max(), rows[:, 2].sum(), rows[:, 3].sum(), rows[0, 4], rows[0, 5]],
                    np.int64)


def late_starts(planned: BurstTable) -> int:
    """How many planned bursts were due before all earlier ones had ended. start is a due time, end a completion."""
    if len(planned) < 2:
        return 0
    return int((np.maximum.accumulate(planned.end_ns)[:-1] > planned.start_ns[1:]).sum())
