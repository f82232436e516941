"""The completions that a thread waited for together: after `io_submit` of many, or a read split by the kernel.

A trace has the last of them in `waited_on`. The others are the thread's I/Os that were outstanding when it fell asleep
and complete when it woke: on another drive one of these may be the last (docs/replay.md).
"""

import numpy as np

from .history import NONE


class Outstanding:
    """The I/Os of each thread in one lane that may have been outstanding when it fell asleep.

    limit: most I/Os returned for a row. reach: largest distance of these, in rows.
    """

    def __init__(self, limit: int, reach: int):
        self._limit = limit
        self._reach = reach
        self._number = self._tid = self._complete_ns = np.empty(0, np.int64)
        self._submitted_ns: dict[int, int] = {}  # last submission, by thread

    def add(self, number: np.ndarray, tid: np.ndarray, submit_ns: np.ndarray, complete_ns: np.ndarray,
            selected: np.ndarray) -> None:
        """Add the next rows of the lane that are selected. complete_ns: all known."""
        self._number = np.concatenate([self._number, number[selected]])
        self._tid = np.concatenate([self._tid, tid[selected]])
        self._complete_ns = np.concatenate([self._complete_ns, complete_ns[selected]])
        # Submissions do not step back, so that the last one of each thread remains.
        self._submitted_ns.update(zip(tid[selected].tolist(), submit_ns[selected].tolist(), strict=True))

    def besides(self, waited: np.ndarray, number: np.ndarray, tid: np.ndarray, asleep_ns: np.ndarray,
                woken_ns: np.ndarray) -> list[np.ndarray]:
        """Rows that each row waited for besides `waited`, latest completion first, NONE after the last of them.

        waited: row of the completion at woken_ns; NONE: the row waits for nothing. asleep_ns: when the thread fell
        asleep. Result: `limit` arrays with the shape of `number`. A row that waited for an I/O that was not added, or
        that is another thread's, has no others.
        """
        result = np.full((self._limit, len(number)), NONE, np.int64)
        if not len(self._number):
            return list(result)
        at = np.minimum(np.searchsorted(self._number, waited), len(self._number) - 1)
        waiting = (waited >= 0) & (self._number[at] == waited) & (self._tid[at] == tid) & (asleep_ns < woken_ns)
        rows = np.flatnonzero(waiting)
        order, ends = self._by_completion(tid[rows], woken_ns[rows])
        index, filled = ends - 1, np.zeros(len(rows), np.int64)
        while len(rows):
            candidate = order[np.maximum(index, 0)]
            inside = (index >= 0) & (self._tid[candidate] == tid[rows]) & (
                self._complete_ns[candidate] > asleep_ns[rows])
            distance = number[rows] - self._number[candidate]
            # A distance below 1 is possible at woken_ns itself, with a latency of 0.
            other = inside & (distance > 0) & (distance <= self._reach) & (self._number[candidate] != waited[rows])
            result[filled[other], rows[other]] = self._number[candidate[other]]
            filled += other
            left = inside & (filled < self._limit)
            rows, index, filled = rows[left], index[left] - 1, filled[left]
        return list(result)

    def drop(self, rows: int) -> None:
        """Drop what no later row waits for: complete at the thread's last submission, or out of reach of row `rows`."""
        submitted_ns = np.array([self._submitted_ns[tid] for tid in self._tid.tolist()], np.int64)
        keep = (rows - self._number <= self._reach) & (self._complete_ns > submitted_ns)
        self._number, self._tid, self._complete_ns = (
            self._number[keep], self._tid[keep], self._complete_ns[keep])
        self._submitted_ns = dict(zip(self._tid.tolist(), submitted_ns[keep].tolist(), strict=True))

    def _by_completion(self, tid: np.ndarray, until_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Indexes of the I/Os by thread and completion, and for each query the number of them up to until_ns."""
        count = len(self._number)
        is_query = np.arange(count + len(tid)) >= count
        order = np.lexsort((is_query, np.concatenate([self._complete_ns, until_ns]), np.concatenate([self._tid, tid])))
        sorted_query = is_query[order]
        ends = np.empty(len(tid), np.int64)
        ends[order[sorted_query] - count] = np.cumsum(~sorted_query)[sorted_query]
        return order[~sorted_query], ends
