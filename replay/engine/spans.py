"""Times of a run over all its I/Os: from the first submit to the last completion, and with a read outstanding."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from blkreel.common.files.typed_document import document_of
from blkreel.traces.blocksets.intervals import union
from blkreel.traces.format import metadata_types
from blkreel.traces.format.schema import FLAGS, OPS, QUEUED_LIMIT_NS

from .engine import Batch

# Rows come in the order of completion. None starts so much earlier than the rows before it, so older time is settled.
_SETTLED_NS = 300 * 10**9
_MERGE_ROWS = 1 << 18
_LEAST_PAUSE_NS = 10**6


@dataclass
class LateEnd:
    """The last I/Os of a run, if they come after a pause without any, and the trace has all of them before others.

    row: of the trace, of the first of them. ios: 0 if there are none. pause_ns: before them.
    """

    row: int = -1
    ios: int = 0
    pause_ns: int = 0
    _last_row: int = -1
    _begin_ns: int = 0
    _end_ns: int | None = None

    def add(self, row: np.ndarray, submit_ns: np.ndarray, complete_ns: np.ndarray) -> None:
        """row: of the trace. In the order of completion."""
        if not len(row):
            return
        last_rows = np.maximum.accumulate(np.append(self._last_row, row))
        ends_ns = np.maximum.accumulate(np.append(submit_ns[0] if self._end_ns is None else self._end_ns,
                                                  complete_ns))
        newest = np.flatnonzero(row > last_rows[:-1])
        begin = int(newest[-1]) + 1 if len(newest) else 0
        if len(newest):
            self.ios = 0
        if not self.ios:
            pauses = begin + np.flatnonzero(submit_ns[begin:] - ends_ns[begin:-1] >= _LEAST_PAUSE_NS)
            begin = int(pauses[0]) if len(pauses) else len(row)
            if len(pauses):
                self.row, self._begin_ns = int(row[begin]), int(ends_ns[begin])
                self.pause_ns = int(submit_ns[begin]) - self._begin_ns
        self.ios += len(row) - begin
        self._last_row, self._end_ns = int(last_rows[-1]), int(ends_ns[-1])

    @property
    def late_ns(self) -> int:
        """How much later than all others they end."""
        return (self._end_ns or 0) - self._begin_ns if self.ios else 0


class RunSpan:
    """From the first submit to the last completion, of all I/O and of workload I/O.

    finds_late_end: takes 20 ns of an I/O, and rows with source_row.
    """

    def __init__(self, finds_late_end: bool = False) -> None:
        self._all_ns: tuple[int, int] | None = None
        self._workload_ns: tuple[int, int] | None = None
        self._late_ends = (LateEnd(), LateEnd()) if finds_late_end else ()  # of all, of the workload

    def add(self, rows: Batch) -> None:
        self._all_ns = _widened(self._all_ns, rows["submit_ns"], rows["complete_ns"])
        is_workload = (rows["flags"] & FLAGS["own"]) != 0
        self._workload_ns = _widened(self._workload_ns, rows["submit_ns"][is_workload],
                                     rows["complete_ns"][is_workload])
        for late_end, mask in zip(self._late_ends, (slice(None), is_workload), strict=False):
            late_end.add(*(rows[name][mask] for name in ("source_row", "submit_ns", "complete_ns")))

    @property
    def wall_ns(self) -> int:
        return max(0, self._all_ns[1] - self._all_ns[0]) if self._all_ns else 0

    @property
    def workload_wall_ns(self) -> int | None:
        """Without the I/O of other programs; None if the trace marks no workload I/O."""
        return self._workload_ns[1] - self._workload_ns[0] if self._workload_ns else None

    @property
    def late_end(self) -> LateEnd:
        """Of workload I/O; of all I/O if none is marked."""
        return self._late_ends[self._workload_ns is not None] if self._late_ends else LateEnd()

    @property
    def load_time_ns(self) -> int:
        """Of workload I/O; of all I/O if none is marked."""
        return self.wall_ns if self.workload_wall_ns is None else self.workload_wall_ns


class OutstandingTime:
    """Length of the union of intervals [start, end), which come about in the order of their ends."""

    def __init__(self) -> None:
        self._settled_ns = 0
        self._starts_ns = self._ends_ns = np.empty(0, np.int64)  # disjoint, ascending
        self._pending: list[tuple[np.ndarray, np.ndarray]] = []
        self._pending_rows = 0

    def add(self, starts_ns: np.ndarray, ends_ns: np.ndarray) -> None:
        """One interval or more."""
        self._pending.append((starts_ns, ends_ns))
        self._pending_rows += len(starts_ns)
        if self._pending_rows > max(_MERGE_ROWS, len(self._starts_ns)):
            self._merge()
            self._settle(int(starts_ns.min()) - _SETTLED_NS)

    def until(self, end_ns: int | None = None) -> int:
        """The length in ns, of what lies before end_ns."""
        self._merge()
        ends_ns = self._ends_ns if end_ns is None else np.minimum(self._ends_ns, end_ns)
        return self._settled_ns + int(np.maximum(ends_ns - self._starts_ns, 0).sum())

    def _merge(self) -> None:
        if not self._pending:
            return
        starts_ns = np.concatenate([self._starts_ns, *(start_ns for start_ns, _ in self._pending)])
        ends_ns = np.concatenate([self._ends_ns, *(end_ns for _, end_ns in self._pending)])
        self._pending, self._pending_rows = [], 0
        self._starts_ns, self._ends_ns = union(starts_ns, ends_ns)

    def _settle(self, before_ns: int) -> None:
        count = int(np.searchsorted(self._ends_ns, before_ns))
        self._settled_ns += int((self._ends_ns[:count] - self._starts_ns[:count]).sum())
        self._starts_ns, self._ends_ns = self._starts_ns[count:], self._ends_ns[count:]


class ReadTimes:
    """Of the completed reads, in any order. wait_ns is the length of the union of [start, complete) over reads.

    start: due where the drive's queue was full, at most QUEUED_LIMIT_NS before submit; else submit.
    """

    def __init__(self) -> None:
        self._span = RunSpan()
        self._outstanding = OutstandingTime()
        self._has_reads = False

    def add(self, rows: Batch) -> None:
        mask = (rows["op"] == OPS["read"]) & (rows["complete_ns"] >= rows["submit_ns"])
        if not mask.any():
            return
        self._has_reads = True
        reads = {name: rows[name][mask] for name in ("submit_ns", "complete_ns", "due_ns", "flags")}
        self._span.add(reads)
        queue_full = (reads["flags"] & FLAGS["queue_full"]) != 0
        submit_ns = reads["submit_ns"]
        due_ns = np.clip(reads["due_ns"], submit_ns - QUEUED_LIMIT_NS, submit_ns)
        self._outstanding.add(np.where(queue_full, due_ns, submit_ns), reads["complete_ns"])

    def account(self) -> dict[str, Any] | None:
        """A document of metadata_types.ReadTimes; None without a read."""
        return document_of(metadata_types.ReadTimes(
            load_time_ns=self._span.load_time_ns, wait_ns=self._outstanding.until())) if self._has_reads else None


def _widened(span_ns: tuple[int, int] | None, submit_ns: np.ndarray,
             complete_ns: np.ndarray) -> tuple[int, int] | None:
    """The span, extended to these I/Os."""
    if not len(submit_ns):
        return span_ns
    first_ns, last_ns = int(submit_ns.min()), int(complete_ns.max())
    return (min(span_ns[0], first_ns), max(span_ns[1], last_ns)) if span_ns else (first_ns, last_ns)
