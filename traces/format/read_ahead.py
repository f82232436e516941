"""The share of read-ahead, which limits what a dependent replay predicts (docs/replay.md, "Errors of a dependent
replay")."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from .schema import FLAGS


@dataclass
class ReadAheadCount:
    """I/Os with the flag `read_ahead`, of the workload and of all programs.

    blocked_unknown: those of them whose thread has no `blocked_ns`.
    """

    ios: int = 0
    read_ahead_ios: int = 0
    blocked_unknown_ios: int = 0
    workload_ios: int = 0
    workload_read_ahead_ios: int = 0
    workload_blocked_unknown_ios: int = 0

    def add(self, flags: np.ndarray, blocked_ns: np.ndarray | None) -> None:
        """blocked_ns: of the rows, None if the trace has no such column."""
        read_ahead = (flags & FLAGS["read_ahead"]) != 0
        workload = (flags & FLAGS["own"]) != 0
        unknown = read_ahead if blocked_ns is None else read_ahead & (blocked_ns < 0)
        self.ios += len(flags)
        self.read_ahead_ios += int(read_ahead.sum())
        self.blocked_unknown_ios += int(unknown.sum())
        self.workload_ios += int(workload.sum())
        self.workload_read_ahead_ios += int((read_ahead & workload).sum())
        self.workload_blocked_unknown_ios += int((unknown & workload).sum())

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def account(self) -> dict[str, int]:
        """Counts of the I/Os that the load time covers: workload I/O, or all I/O if none is marked."""
        if self.workload_ios:
            return {"ios": self.workload_ios, "read_ahead_ios": self.workload_read_ahead_ios,
                    "blocked_unknown_ios": self.workload_blocked_unknown_ios}
        return {"ios": self.ios, "read_ahead_ios": self.read_ahead_ios, "blocked_unknown_ios": self.blocked_unknown_ios}


class ReadAheadInTime:
    """Counts read-ahead that no later row waited for, because it was complete when a thread needed it.

    On a slower drive the thread would wait for it, which the trace does not say. reach: distance in rows of the trace
    from which on a wait is not noticed.
    """

    def __init__(self, reach: int):
        self._reach = reach
        self._row = np.empty(0, np.int64)
        self._is_workload = np.empty(0, bool)
        self._counts = np.zeros(2, np.int64)  # out of reach: of other programs, of the workload

    def add(self, row: np.ndarray, flags: np.ndarray, waited_on: np.ndarray) -> None:
        """row: numbers in the trace of the next rows, which increase. waited_on: rows that any of them waited for."""
        read_ahead = (flags & FLAGS["read_ahead"]) != 0
        rows = np.concatenate([self._row, row[read_ahead]])
        is_workload = np.concatenate([self._is_workload, (flags[read_ahead] & FLAGS["own"]) != 0])
        left = ~np.isin(rows, waited_on)
        far = left & (rows < row[-1] - self._reach)
        self._counts += np.bincount(is_workload[far], minlength=2)
        self._row, self._is_workload = rows[left & ~far], is_workload[left & ~far]

    def ios(self, of_workload: bool) -> int:
        """of_workload: count only workload I/O."""
        counts = self._counts + np.bincount(self._is_workload, minlength=2)
        return int(counts[1] if of_workload else counts.sum())
