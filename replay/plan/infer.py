"""Dependencies of a dependent replay, inferred from times, for traces whose capture did not observe them.

An I/O depends on all I/Os that its thread, or any thread if that is unknown, completed before its submission. Those
that completed before another of them was submitted are left out (transitive reduction; docs/replay.md).
"""

from collections import Counter

import numpy as np

from blkreel.common.limits import check_state
from blkreel.replay.engine.engine import DEPENDENCY_REACH, Batch

from .computing import divided
from .dependencies import KINDS, distances
from .history import NONE, UNKNOWN_NS, History, last_before

_THREAD_BYTES = 1900  # of memory for each, beside that of the plan
MAX_PARENTS = 4  # completions that one row of the plan can depend on


class Inferred:
    """Dependencies by times, for the rows of one lane in their order. counts: rows by KINDS."""

    def __init__(self, max_parents: int = MAX_PARENTS, reach: int = DEPENDENCY_REACH, file_bytes: int = 0,
                 compute: float = 1.0):
        """file_bytes: of the trace, whose threads may take memory in proportion (state_limit.py); 0: without limit.
        compute: divisor of computing times."""
        self._compute = compute
        self._file_bytes = file_bytes
        self.counts = Counter(dict.fromkeys(KINDS, 0))
        self._max_parents = max_parents
        self._history = History(reach)
        self._by_thread: dict[int, _Completions] = {}
        # One more than max_parents, to count the rows that have more.
        self._all_threads = _Completions(max_parents + 1)
        self._last: dict[int, int] = {}

    @property
    def reach(self) -> int:
        return self._history.reach

    def columns(self, io: Batch, source_row: np.ndarray, submit_ns: np.ndarray) -> Batch:
        """DEPENDENCY_COLUMNS of the next rows. io: tid, latency_ns. submit_ns: in the plan."""
        after, behind = self.parents(io["tid"], source_row, submit_ns, io["latency_ns"])
        number = np.arange(self._history.rows - len(submit_ns), self._history.rows)
        dependent = (after[0] >= 0) | (behind >= 0)
        self.counts["waited"] += int((after[0] >= 0).sum())
        self.counts["followed"] += int(((after[0] < 0) & dependent).sum())
        self.counts["absolute"] += int((~dependent).sum())
        columns = distances(self._history, number, submit_ns, after, behind)
        if self._compute == 1:
            return columns
        unknown = np.full(len(number), NONE)
        return divided(columns, self._compute, self._history, number, unknown, unknown < 0)

    def parents(self, tid: np.ndarray, source_row: np.ndarray, submit_ns: np.ndarray,
                latency_ns: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Row numbers (after, behind): completions that the rows depend on, latest first, and a submission."""
        unused = np.zeros(len(tid), np.int64)
        number = self._history.add(source_row, submit_ns, latency_ns, unused, unused)
        complete_ns = self._history.complete_ns(number)
        has_tid = tid >= 0
        behind = np.where(has_tid, last_before(tid, number, has_tid, self._last), NONE)
        # The first row of a thread has no earlier rows of its own: like rows of unknown threads, it may depend on all.
        after = self._all_threads.parents(number, submit_ns, complete_ns)
        first = has_tid & (behind < 0)
        order = np.argsort(tid, kind="stable")
        threads, starts = np.unique(tid[order], return_index=True)
        if self._file_bytes:
            thread_count = len(self._by_thread.keys() | set(threads.tolist()))
            check_state(thread_count * _THREAD_BYTES, self._file_bytes, "threads")
        for thread, rows in zip(threads.tolist(), np.split(order, starts[1:]), strict=True):
            if thread < 0:
                continue
            completions = self._by_thread.setdefault(thread, _Completions(self._max_parents + 1))
            of_thread = completions.parents(number[rows], submit_ns[rows], complete_ns[rows])
            after[:, rows] = np.where(first[rows], after[:, rows], of_thread)
        *planned, beyond = after
        self.counts["truncated"] += int((beyond >= 0).sum())
        return self._within_reach(number, planned, behind)

    def _within_reach(self, number: np.ndarray, after: list[np.ndarray],
                      behind: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        history = self._history
        reachable = [history.in_reach(parent, number) for parent in after]
        self.counts["reanchored"] += int(((after[0] >= 0) & (reachable[0] < 0)).sum())
        behind = history.in_reach(behind, number)
        # `behind` adds nothing if the thread issued no row since the completion that this row waits for.
        latest = reachable[0]
        since = (latest < 0) | (history.submit_ns(behind) > history.complete_ns(latest))
        behind = np.where(since, behind, NONE)
        # If the parent is out of reach, the row before this one is later.
        stray = (after[0] >= 0) & (latest < 0) & (behind < 0)
        return reachable, np.where(stray, number - 1, behind)


class _Completions:
    """The rows that later rows can depend on: those in flight, and the last to complete."""

    __slots__ = ("_complete_ns", "_latest_submit_ns", "_max_parents", "_number", "_submit_ns")

    def __init__(self, max_parents: int):
        self._max_parents = max_parents
        self._number = self._submit_ns = self._complete_ns = np.empty(0, np.int64)
        self._latest_submit_ns = int(np.iinfo(np.int64).min)  # of all rows completed by the last row

    def parents(self, number: np.ndarray, submit_ns: np.ndarray, complete_ns: np.ndarray) -> np.ndarray:
        """Shape (max_parents, rows): the parents of the next rows, latest completion first, then NONE."""
        has_end = complete_ns != UNKNOWN_NS
        self._number = np.concatenate([self._number, number[has_end]])
        self._submit_ns = np.concatenate([self._submit_ns, submit_ns[has_end]])
        # An I/O with a latency of 0 counts as completed right after its submission, or it would precede itself.
        done_ns = np.maximum(complete_ns, submit_ns + 1)
        self._complete_ns = np.concatenate([self._complete_ns, done_ns[has_end]])
        self._select(np.argsort(self._complete_ns, kind="stable"))

        latest_ns = np.maximum.accumulate(np.concatenate([[self._latest_submit_ns], self._submit_ns]))
        done = np.searchsorted(self._complete_ns, submit_ns, "right")
        lowest = np.searchsorted(self._complete_ns, latest_ns[done], "right")
        parents = np.full((self._max_parents, len(number)), NONE, np.int64)
        for rank in range(self._max_parents):
            index = done - 1 - rank
            valid = index >= lowest
            parents[rank, valid] = self._number[index[valid]]
        self._latest_submit_ns = int(latest_ns[done[-1]])
        self._select(slice(max(0, int(done[-1]) - self._max_parents), None))
        return parents

    def _select(self, rows: np.ndarray | slice) -> None:
        self._number, self._submit_ns, self._complete_ns = (
            self._number[rows], self._submit_ns[rows], self._complete_ns[rows])
