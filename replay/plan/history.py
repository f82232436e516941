"""The last rows of a lane of the plan: candidates for the dependencies of later rows.

A thread may have waited for several completions together: after `io_submit` of many, or a read split by the kernel. A
trace has the last of them in `waited_on`. The others are the thread's I/Os that were outstanding when it fell asleep
and complete when it woke: on another drive one of these may be the last (docs/replay.md).
"""

from collections.abc import Sequence

import numpy as np

from blkreel.replay.engine.engine import DEPENDENCY_REACH

# Rows searched for the cause of a thread's first row.
_CAUSE_ROWS = 4096
UNKNOWN_NS = -1
# Columns of the trace: times of a thread up to each of its rows, by what it did in them.
THREAD_TIMES = ("blocked_ns", "slept_ns", "runnable_ns")
NONE = -1


class History:
    """Rows are numbered in the order of the lane, from 0. Times are those of the plan on the source's drive.

    reach: largest distance of a dependency, in rows. complete_ns is UNKNOWN_NS without a captured completion.
    """

    def __init__(self, reach: int = DEPENDENCY_REACH):
        self.reach = reach
        self.rows = 0  # added so far
        self._first = 0  # number of the oldest row in _columns
        self._columns = {name: np.empty(0, np.int64) for name in ("source", "submit", "complete", "process", "kind",
                                                                *THREAD_TIMES)}

    def add(self, source_row: np.ndarray, submit_ns: np.ndarray, latency_ns: np.ndarray, process: np.ndarray,
            kind: np.ndarray, thread_times_ns: Sequence[np.ndarray | None] = ()) -> np.ndarray:
        """Add rows, drop rows out of their reach, and return the numbers of the added rows.

        thread_times_ns: THREAD_TIMES; None for one that the trace does not have.
        """
        complete_ns = np.where(latency_ns >= 0, submit_ns + latency_ns, UNKNOWN_NS)
        dropped = max(0, self.rows - self.reach) - self._first
        self._first += dropped
        unknown = np.full(len(submit_ns), UNKNOWN_NS)
        times = [unknown if column is None else column for column in thread_times_ns or [None] * len(THREAD_TIMES)]
        for name, values in (("source", source_row), ("submit", submit_ns), ("complete", complete_ns),
                             ("process", process), ("kind", kind), *zip(THREAD_TIMES, times, strict=True)):
            self._columns[name] = np.concatenate([self._columns[name][dropped:], values])
        number = np.arange(self.rows, self.rows + len(source_row))
        self.rows += len(source_row)
        return number

    def number_of(self, source_row: np.ndarray) -> np.ndarray:
        """The numbers of rows of the trace; NONE for rows that are not in the lane, or were dropped."""
        source = self._columns["source"]
        index = np.minimum(np.searchsorted(source, source_row), len(source) - 1)
        return np.where((source_row >= 0) & (source[index] == source_row), index + self._first, NONE)

    def completed_at(self, complete_ns: np.ndarray) -> np.ndarray:
        """The number of a row that completed at each of these times, NONE where no row did."""
        order = np.argsort(self._columns["complete"], kind="stable")
        index = np.minimum(np.searchsorted(self._columns["complete"][order], complete_ns), len(order) - 1)
        matches = self._columns["complete"][order[index]] == complete_ns
        return np.where(matches & (complete_ns >= 0), order[index] + self._first, NONE)

    def submit_ns(self, number: np.ndarray) -> np.ndarray:
        """Any value where the number is NONE."""
        return np.asarray(self._columns["submit"][np.maximum(number - self._first, 0)])

    def complete_ns(self, number: np.ndarray) -> np.ndarray:
        """Any value where the number is NONE."""
        return np.asarray(self._columns["complete"][np.maximum(number - self._first, 0)])

    def kind(self, number: np.ndarray) -> np.ndarray:
        """Any value where the number is NONE."""
        return np.asarray(self._columns["kind"][np.maximum(number - self._first, 0)])

    def between_ns(self, name: str, earlier: np.ndarray, later: np.ndarray) -> np.ndarray:
        """How much one of THREAD_TIMES grew between two rows of a thread; UNKNOWN_NS if unknown or earlier is NONE."""
        before_ns, until_ns = (self._columns[name][np.maximum(number - self._first, 0)] for number in (earlier, later))
        valid = (earlier >= 0) & (before_ns >= 0) & (until_ns >= before_ns)
        return np.where(valid, until_ns - before_ns, UNKNOWN_NS)

    def in_reach(self, number: np.ndarray, of: np.ndarray) -> np.ndarray:
        """The numbers, NONE where they are out of reach of the rows `of`."""
        return np.where((number >= 0) & (of - number <= self.reach), number, NONE)

    def last_done(self, number: int, latest: int, kind: int, process: int | None) -> int:
        """The last row up to `latest` to complete before row `number` was submitted, of a kind and a process.

        Searches the last few thousand rows only; NONE without such a row.
        """
        end = latest + 1 - self._first
        start = max(0, end - _CAUSE_ROWS, number - self.reach - self._first)
        complete_ns = self._columns["complete"][start:end]
        candidates = (self._columns["kind"][start:end] & kind) != 0
        if process is not None:
            candidates &= self._columns["process"][start:end] == process
        candidates &= (complete_ns != UNKNOWN_NS) & (complete_ns <= self._columns["submit"][number - self._first])
        if not candidates.any():
            return NONE
        return start + self._first + int(np.argmax(np.where(candidates, complete_ns, UNKNOWN_NS)))


def last_of_all(number: np.ndarray, selected: np.ndarray, last: int) -> tuple[np.ndarray, int]:
    """For each row the latest earlier selected row, and the latest of all. last: of earlier batches, or NONE."""
    latest = np.maximum.accumulate(np.where(selected, number, last))
    return np.concatenate([[last], latest[:-1]]), int(latest[-1])


def last_before(key: np.ndarray, number: np.ndarray, selected: np.ndarray, last: dict[int, int]) -> np.ndarray:
    """For each row the latest earlier selected row with the same key, or NONE. Updates `last`.

    number: of the rows, increasing by one. last: by key, the latest selected row of earlier batches.
    """
    order = np.argsort(key, kind="stable")
    sorted_key = key[order]
    is_first = np.concatenate([[True], sorted_key[1:] != sorted_key[:-1]])
    start = np.maximum.accumulate(np.where(is_first, np.arange(len(key)), 0))
    latest = np.maximum.accumulate(np.where(selected[order], np.arange(len(key)), -1))
    before = np.concatenate([[-1], latest[:-1]])
    keys = sorted_key[is_first].tolist()
    earlier = np.array([last.get(key, NONE) for key in keys], np.int64)
    group = np.cumsum(is_first) - 1
    result = np.empty(len(key), np.int64)
    result[order] = np.where(before >= start, number[order[np.maximum(before, 0)]], earlier[group])
    ends = np.concatenate([np.flatnonzero(is_first)[1:], [len(key)]]) - 1
    for value, end, begin in zip(keys, latest[ends].tolist(), start[ends].tolist(), strict=True):
        if end >= begin:
            last[value] = int(number[order[end]])
    return result


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
            is_parent = inside & (distance > 0) & (distance <= self._reach) & (self._number[candidate] != waited[rows])
            result[filled[is_parent], rows[is_parent]] = self._number[candidate[is_parent]]
            filled += is_parent
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
