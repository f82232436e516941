"""Which thread issues which I/O, where one thread cannot keep up.

I/Os that overlap must stay in order, and one that waits for another must be in its lane. So what has times of its own
is cut by device and place, and what depends is cut between groups of threads that never waited for each other.
"""

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .dependencies import KERNEL, OWN, Processes
from .engine import ANCHOR_REACH

# Where `auto` takes one thread more: half of what one issues to a drive in memory with records on.
AUTO_IOPS = 500_000
AUTO_WINDOW_NS = 10_000_000
_REGION_SHIFT = 24  # 16 MiB: large beside an I/O, small beside a drive
_KNUTH = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Sharding:
    """threads: how many. note: why fewer than were asked for.

    of_places(target, offset_bytes) or of_threads(tid) tells the shard of each I/O; neither where there is but one.
    """

    threads: int = 1
    of_places: Callable | None = None
    of_threads: Callable | None = None
    by: str | None = None
    note: str | None = None

    def account(self) -> dict:
        return {"count": self.threads, "by": self.by, "note": self.note}


ONE = Sharding()


def sharded(plan, threads: int | str):
    """The plan, cut for so many threads, or `auto`: for as many as its peak intensity needs."""
    count = threads_for(plan) if threads == "auto" else threads
    if count <= 1:
        return plan
    pace = plan.pace
    if not pace.dependent:
        return dataclasses.replace(plan, sharding=by_place(count, len(plan.drives), pace))
    if not plan.observed:
        return dataclasses.replace(plan, sharding=Sharding(note="inferred dependencies tie all threads together"))
    return dataclasses.replace(plan, sharding=by_component(plan, count))


def by_place(count: int, drives: int, pace) -> Sharding:
    """By drive where there are as many, else by regions: an I/O over a border goes with its start."""
    note = None
    if pace.saturating and pace.depth < count:
        count, note = pace.depth, f"a depth of {pace.depth} is work for no more"
    if count == 1:
        return Sharding(note=note)
    return Sharding(count, place_hash(count, drives), by="drive" if drives >= count else "place", note=note)


def place_hash(count: int, drives: int) -> Callable:
    def of(target, offset_bytes):
        target = np.broadcast_to(np.asarray(target, np.int64), len(offset_bytes))
        if drives >= count:
            return target % count
        region = (offset_bytes >> _REGION_SHIFT) + (target << 40)
        mixed = region.astype(np.uint64) * _KNUTH
        return ((mixed >> np.uint64(33)) % np.uint64(count)).astype(np.int64)

    return of


def threads_for(plan) -> int:
    """By the peak of the plan over 10 ms, AUTO_IOPS a thread, one processor left for the rest.

    One without times, and where the drive is simulated.
    """
    if not plan.pace.timed or any(target.is_simulated for target in plan.targets):
        return 1
    peak, last, carried = 0, None, 0
    for batch in plan.trace.batches(["submit_ns"]):
        window, counts = np.unique(batch["submit_ns"].to_numpy() // round(AUTO_WINDOW_NS * plan.pace.factor),
                                   return_counts=True)
        counts[0] += carried if window[0] == last else 0
        peak, last, carried = max(peak, int(counts.max())), window[-1], int(counts[-1])
    wanted = -(-peak * plan.mapping.copies * 10**9 // AUTO_WINDOW_NS // AUTO_IOPS)
    return max(1, min(wanted, (os.cpu_count() or 1) - 1))


def by_component(plan, count: int) -> Sharding:
    """Processes that ever waited for each other's I/O, or are put behind each other, stay in one shard."""
    groups = Groups(plan.trace.metadata.get("threads"))
    for io, source_row, _ in dataclasses.replace(plan, sharding=_WITH_THREADS).rows():
        groups.add(io, source_row)
    rows_of = groups.components()
    if len(rows_of) < 2:
        return Sharding(note="all threads of the trace waited for each other")
    load, shard_of = [0] * min(count, len(rows_of)), {}
    for members, rows in sorted(rows_of.items(), key=lambda one: -one[1]):
        shard = load.index(min(load))
        load[shard] += rows
        shard_of |= dict.fromkeys(members, shard)
    note = None if len(load) == count else f"the trace falls into {len(load)} groups that did not wait for each other"
    return Sharding(len(load), of_threads=lambda tid: groups.look_up(tid, shard_of), by="threads", note=note)


_WITH_THREADS = Sharding(of_threads=lambda tid: np.zeros(len(tid), np.int64))
_EVERY_OWN = -2  # stands for what was captured; no process has that number


class Groups:
    """Union-find over processes. What dependencies.py puts behind each other must come out in one group."""

    def __init__(self, threads: dict | None):
        self._processes = Processes(threads)
        self._parent: dict[int, int] = {}
        self._rows: dict[int, int] = {}
        self._own_seen = False
        self._source = self._process = np.empty(0, np.int64)

    def add(self, io, source_row) -> None:
        process, kind = self._processes.of(io["tid"], io["flags"])
        for one, rows in zip(*np.unique(process, return_counts=True), strict=True):
            self._rows[int(one)] = self._rows.get(int(one), 0) + int(rows)
        self._together(process[(kind & OWN) != 0], _EVERY_OWN)
        kernel = kind == KERNEL
        if kernel.any():
            # They are put behind what was captured; while there was none of that yet, behind any program.
            own = np.flatnonzero((kind & OWN) != 0)
            first_own = 0 if self._own_seen else int(own[0]) if len(own) else len(kind)
            self._together(process[kernel], _EVERY_OWN)
            if kernel[:first_own].any():
                self._together(np.array(list(self._rows)), _EVERY_OWN)
        self._own_seen = self._own_seen or bool((kind & OWN).any())
        self._join_waits(io["waited_on"], process, source_row)

    def components(self) -> dict[tuple[int, ...], int]:
        """The groups, with their numbers of I/Os."""
        members: dict[int, list[int]] = {}
        for one in self._rows:
            members.setdefault(self._root(one), []).append(one)
        return {tuple(some): sum(self._rows[one] for one in some) for some in members.values()}

    def look_up(self, tid, shard_of: dict[int, int]) -> np.ndarray:
        process, _ = self._processes.of(tid, np.zeros(len(tid), np.int32))
        known, index = np.unique(process, return_inverse=True)
        return np.array([shard_of.get(one, 0) for one in known.tolist()], np.int64)[index]

    def _join_waits(self, waited_on, process, source_row):
        self._source = np.concatenate([self._source[-ANCHOR_REACH:], source_row])
        self._process = np.concatenate([self._process[-ANCHOR_REACH:], process])
        at = np.minimum(np.searchsorted(self._source, waited_on), len(self._source) - 1)
        found = (waited_on >= 0) & (self._source[at] == waited_on)
        pairs = np.unique(np.stack([self._process[at[found]], process[found]]), axis=1)
        for one, other in pairs.T.tolist():
            self._join(one, other)

    def _together(self, processes, root):
        for one in np.unique(processes).tolist():
            self._join(one, root)

    def _join(self, one, other):
        self._parent[self._root(one)] = self._root(other)

    def _root(self, one):
        while self._parent.setdefault(one, one) != one:
            self._parent[one] = self._parent[self._parent[one]]
            one = self._parent[one]
        return one
