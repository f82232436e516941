"""The last rows of a lane of the plan: what a later row can wait for, and how far back it is."""

import numpy as np

from .engine import ANCHOR_REACH

# The causes of a thread's first row are looked for so far back.
_CAUSE_ROWS = 4096
UNKNOWN_NS = -1
NONE = -1


class History:
    """Rows are numbered in the order of the lane, from 0. Times are those of the plan on the source's drive.

    complete_ns is UNKNOWN_NS where no completion was seen.
    """

    def __init__(self, reach: int = ANCHOR_REACH):
        self.reach = reach
        self.rows = 0  # of the lane so far
        self._first = 0  # the number of the oldest row that is held
        self._held = {name: np.empty(0, np.int64) for name in ("source", "submit", "complete", "process", "kind")}

    def add(self, source_row, submit_ns, latency_ns, process, kind) -> np.ndarray:
        """Take the next rows; their numbers in the lane. What is out of their reach is forgotten."""
        complete_ns = np.where(latency_ns >= 0, submit_ns + latency_ns, UNKNOWN_NS)
        kept = max(0, self.rows - self.reach) - self._first
        self._first += kept
        for name, values in (("source", source_row), ("submit", submit_ns), ("complete", complete_ns),
                             ("process", process), ("kind", kind)):
            self._held[name] = np.concatenate([self._held[name][kept:], values])
        number = np.arange(self.rows, self.rows + len(source_row))
        self.rows += len(source_row)
        return number

    def number_of(self, source_row: np.ndarray) -> np.ndarray:
        """Of rows of the trace, their numbers in the lane; NONE where they are not in it, or forgotten."""
        held = self._held["source"]
        at = np.minimum(np.searchsorted(held, source_row), len(held) - 1)
        return np.where((source_row >= 0) & (held[at] == source_row), at + self._first, NONE)

    def submit_ns(self, number: np.ndarray) -> np.ndarray:
        return self._of("submit", number)

    def complete_ns(self, number: np.ndarray) -> np.ndarray:
        return self._of("complete", number)

    def in_reach(self, number: np.ndarray, of: np.ndarray) -> np.ndarray:
        """The numbers, NONE where they are further back from `of` than the engine remembers."""
        return np.where((number >= 0) & (of - number <= self.reach), number, NONE)

    def last_done(self, number: int, latest: int, kind: int, process: int | None) -> int:
        """Of the rows up to `latest`, of a kind and a process, the last to complete before `number` was submitted.

        Looked for among the last few thousand rows only; NONE where there is none.
        """
        end = latest + 1 - self._first
        start = max(0, end - _CAUSE_ROWS, number - self.reach - self._first)
        mine = (self._held["kind"][start:end] & kind) != 0
        if process is not None:
            mine &= self._held["process"][start:end] == process
        complete_ns = self._held["complete"][start:end]
        mine &= (complete_ns != UNKNOWN_NS) & (complete_ns <= self._held["submit"][number - self._first])
        if not mine.any():
            return NONE
        return start + self._first + int(np.argmax(np.where(mine, complete_ns, UNKNOWN_NS)))

    def _of(self, name, number):
        """Anything, where the number is NONE."""
        return self._held[name][np.maximum(number - self._first, 0)]


def last_of_all(number: np.ndarray, counts: np.ndarray, last: int) -> tuple[np.ndarray, int]:
    """For each row the latest earlier one that counts, and the latest at all. last: of earlier batches, or NONE."""
    latest = np.maximum.accumulate(np.where(counts, number, last))
    return np.concatenate([[last], latest[:-1]]), int(latest[-1])


def last_before(key: np.ndarray, number: np.ndarray, counts: np.ndarray, last: dict[int, int]) -> np.ndarray:
    """For each row the latest earlier one with the same key that counts, and `last` brought up to date.

    number: of the rows, rising by one. last: by key, the latest row of earlier batches. NONE where there is none.
    """
    order = np.argsort(key, kind="stable")
    sorted_key = key[order]
    is_first = np.concatenate([[True], sorted_key[1:] != sorted_key[:-1]])
    start = np.maximum.accumulate(np.where(is_first, np.arange(len(key)), 0))
    here = np.maximum.accumulate(np.where(counts[order], np.arange(len(key)), -1))
    before = np.concatenate([[-1], here[:-1]])
    keys = sorted_key[is_first]
    earlier = np.array([last.get(int(one), NONE) for one in keys], np.int64)
    group = np.cumsum(is_first) - 1
    found = np.empty(len(key), np.int64)
    found[order] = np.where(before >= start, number[order[np.maximum(before, 0)]], earlier[group])
    ends = np.concatenate([np.flatnonzero(is_first)[1:], [len(key)]]) - 1
    for one, end, begin in zip(keys.tolist(), here[ends].tolist(), start[ends].tolist(), strict=True):
        if end >= begin:
            last[one] = int(number[order[end]])
    return found
