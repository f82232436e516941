"""What each I/O of a trace may have waited for, where nothing observed it: inferred from times, and only that.

An I/O is taken to depend on all that its thread, or where that is unknown anybody, had completed before its submission.
Of these only those count that no other of them was submitted after (the transitive reduction): the rest were waited
for by then (docs/replay.md).
"""

from collections import Counter

import numpy as np

from .dependencies import KINDS, distances
from .engine import ANCHOR_REACH
from .history import NONE, UNKNOWN_NS, History, last_before

MOST_PARENTS = 4  # what one row of the plan can name


class Inferred:
    """Anchors by times, for the rows of one lane in their order. counts: by KINDS, how rows were anchored."""

    def __init__(self, most: int = MOST_PARENTS, reach: int = ANCHOR_REACH):
        self.counts = Counter(dict.fromkeys(KINDS, 0))
        self._most = most
        self._history = History(reach)
        self._threads: dict[int, _Completions] = {}
        self._everybody = _Completions(most)
        self._last: dict[int, int] = {}

    @property
    def reach(self) -> int:
        return self._history.reach

    def anchor(self, io: dict, source_row, submit_ns) -> dict[str, np.ndarray]:
        """The anchors of the next rows. io has tid and latency_ns; submit_ns is the plan's."""
        after, behind = self.parents(io["tid"], source_row, submit_ns, io["latency_ns"])
        number = np.arange(self._history.rows - len(submit_ns), self._history.rows)
        anchored = (after[0] >= 0) | (behind >= 0)
        self.counts["waited"] += int((after[0] >= 0).sum())
        self.counts["followed"] += int(((after[0] < 0) & anchored).sum())
        self.counts["absolute"] += int((~anchored).sum())
        return distances(self._history, number, submit_ns, after, behind)

    def parents(self, tid, source_row, submit_ns, latency_ns) -> tuple[list[np.ndarray], np.ndarray]:
        """By number in the lane: the latest completions that the rows depend on, latest first, and what they follow."""
        nothing = np.zeros(len(tid), np.int64)
        number = self._history.add(source_row, submit_ns, latency_ns, nothing, nothing)
        complete_ns = self._history.complete_ns(number)
        known = tid >= 0
        behind = np.where(known, last_before(tid, number, known, self._last), NONE)
        # A thread's first row has no past of its own: like the rows of unknown threads, it may depend on everybody's.
        after = self._everybody.parents(number, submit_ns, complete_ns)
        first = known & (behind < 0)
        order = np.argsort(tid, kind="stable")
        threads, starts = np.unique(tid[order], return_index=True)
        for one, rows in zip(threads.tolist(), np.split(order, starts[1:]), strict=True):
            if one < 0:
                continue
            mine = self._threads.setdefault(one, _Completions(self._most))
            of_thread = mine.parents(number[rows], submit_ns[rows], complete_ns[rows])
            of_everybody = first[rows]
            after[:, rows] = np.where(of_everybody, after[:, rows], of_thread)
        return self._within_reach(number, submit_ns, list(after), behind)

    def _within_reach(self, number, submit_ns, after, behind):
        history = self._history
        reachable = [history.in_reach(parent, number) for parent in after]
        self.counts["reanchored"] += int(((after[0] >= 0) & (reachable[0] < 0)).sum())
        behind = history.in_reach(behind, number)
        # Where the thread has issued nothing since, that it came before is said by what it waited for.
        latest = reachable[0]
        since = (latest < 0) | (history.submit_ns(behind) > history.complete_ns(latest))
        behind = np.where(since, behind, NONE)
        # What is out of reach is so long ago that the row before this one was later.
        stray = (after[0] >= 0) & (latest < 0) & (behind < 0)
        return reachable, np.where(stray, number - 1, behind)


class _Completions:
    """What of some rows so far later ones can depend on: those outstanding, and the last to complete."""

    def __init__(self, most: int):
        self._most = most
        self._number = self._submit_ns = self._complete_ns = np.empty(0, np.int64)
        self._latest_submit_ns = np.iinfo(np.int64).min  # of all that had completed by the last row

    def parents(self, number, submit_ns, complete_ns) -> np.ndarray:
        """Of the next rows: up to `most` parents each, latest completion first, NONE where there are fewer."""
        known = complete_ns != UNKNOWN_NS
        self._number = np.concatenate([self._number, number[known]])
        self._submit_ns = np.concatenate([self._submit_ns, submit_ns[known]])
        # An I/O that took no time counts as done right after its submission, or it would come before itself.
        done_ns = np.maximum(complete_ns, submit_ns + 1)
        self._complete_ns = np.concatenate([self._complete_ns, done_ns[known]])
        order = np.argsort(self._complete_ns, kind="stable")
        self._number, self._submit_ns, self._complete_ns = (
            values[order] for values in (self._number, self._submit_ns, self._complete_ns))

        latest_ns = np.maximum.accumulate(np.concatenate([[self._latest_submit_ns], self._submit_ns]))
        done = np.searchsorted(self._complete_ns, submit_ns, "right")
        lowest = np.searchsorted(self._complete_ns, latest_ns[done], "right")
        found = np.full((self._most, len(number)), NONE, np.int64)
        for place in range(self._most):
            at = done - 1 - place
            here = at >= lowest
            found[place, here] = self._number[at[here]]
        self._forget(int(done[-1]), int(latest_ns[done[-1]]))
        return found

    def _forget(self, done, latest_submit_ns):
        kept = slice(max(0, done - self._most), None)
        self._number, self._submit_ns, self._complete_ns = (
            values[kept] for values in (self._number, self._submit_ns, self._complete_ns))
        self._latest_submit_ns = latest_submit_ns
