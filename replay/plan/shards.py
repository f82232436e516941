"""Assignment of I/Os to issuing threads, for plans that one thread cannot issue in time.

I/Os that overlap must stay in order, and dependencies must stay within a lane. So plans with due times are divided by
device and region, and dependent plans between groups of threads that never waited for each other.
"""

import os

import numpy as np

from blkreel.common.binning import grouped
from blkreel.replay.engine.engine import DEPENDENCY_REACH, Batch

from .dependencies import KERNEL, WORKLOAD, Processes, Threads
from .events import NO_EVENT
from .pace import Pace
from .plan import SINGLE, Sharding, TracePlan

# I/Os a second for which `auto` adds a thread: half of what one thread issues to a drive in memory.
AUTO_IOPS = 500_000
AUTO_WINDOW_NS = 10_000_000
_REGION_SHIFT = 24  # 16 MiB: large compared with an I/O, small compared with a drive
_KNUTH = np.uint64(0x9E3779B97F4A7C15)


def sharding_of(plan: TracePlan, threads: int | str) -> Sharding:
    """The sharding for that many threads, or `auto`: for as many as the peak rate of the plan needs."""
    count = _threads_for(plan) if threads == "auto" else int(threads)
    if count <= 1:
        return SINGLE
    if not plan.pace.dependent:
        return _by_region(count, len(plan.drives), plan.pace)
    if not plan.observed:
        return Sharding(note="inferred dependencies connect all threads")
    return _by_component(plan, count)


def _by_region(count: int, drives: int, pace: Pace) -> Sharding:
    """By drive if there are enough, else by regions. An I/O belongs to the region of its start."""
    note = None
    if pace.saturating and pace.depth < count:
        count, note = pace.depth, f"a depth of {pace.depth} needs no more"
    if count == 1:
        return Sharding(note=note)

    def shard(target: np.ndarray | int, offset_bytes: np.ndarray) -> np.ndarray:
        target = np.broadcast_to(np.asarray(target, np.int64), len(offset_bytes))
        if drives >= count:
            return target % count
        region = (offset_bytes >> _REGION_SHIFT) + (target << 40)
        mixed = region.astype(np.uint64) * _KNUTH
        return ((mixed >> np.uint64(33)) % np.uint64(count)).astype(np.int64)

    return Sharding(count, shard, by="drive" if drives >= count else "place", note=note)


def _threads_for(plan: TracePlan) -> int:
    """The peak rate of the plan's I/Os over 10 ms divided by AUTO_IOPS; one CPU is left for the rest.

    1 for a plan without due times, and for simulated drives.
    """
    if not plan.pace.timed or any(target.is_simulated for target in plan.targets):
        return 1
    peak, last, carried = 0, None, 0
    for io, _, submit_ns in plan.rows():
        submit_ns = submit_ns[plan.selected(io, plan.pace)]
        if not len(submit_ns):
            continue
        window, counts = np.unique(submit_ns // round(AUTO_WINDOW_NS * plan.pace.factor), return_counts=True)
        counts[0] += carried if window[0] == last else 0
        peak, last, carried = max(peak, int(counts.max())), window[-1], int(counts[-1])
    needed = -(-peak * plan.mapping.copies * 10**9 // AUTO_WINDOW_NS // AUTO_IOPS)
    return max(1, min(needed, (os.cpu_count() or 1) - 1))


def _by_component(plan: TracePlan, count: int) -> Sharding:
    """Processes with dependencies on each other's I/O stay in one shard."""
    groups = Groups(plan.trace.metadata.get("threads"))
    for io, source_row, _ in plan.rows(with_threads=True, with_events=plan.has_events):
        groups.add(io, source_row)
    rows_of = groups.components()
    if len(rows_of) < 2:
        return Sharding(note="all threads of the trace waited for each other")
    load = [0] * min(count, len(rows_of))
    shard_of: dict[int, int] = {}
    for members, rows in sorted(rows_of.items(), key=lambda item: -item[1]):
        shard = load.index(min(load))
        load[shard] += rows
        shard_of |= dict.fromkeys(members, shard)
    note = f"the trace has {len(load)} groups of threads that did not wait for each other"
    return Sharding(len(load), by_thread=lambda tid: groups.look_up(tid, shard_of), by="threads",
                    note=None if len(load) == count else note)


_WORKLOAD_GROUP = -2  # stands for all workload I/O; no process has this number


class Groups:
    """Union-find over processes. All dependencies that dependencies.py makes must be within a group."""

    def __init__(self, threads: Threads | None):
        self._processes = Processes(threads)
        self._parent: dict[int, int] = {}
        self._rows: dict[int, int] = {}
        self._workload_seen = False
        self._source = self._process = np.empty(0, np.int64)

    def add(self, io: Batch, source_row: np.ndarray) -> None:
        process, kind = self._processes.of(io["tid"], io["flags"])
        for pid, rows in zip(*np.unique(process, return_counts=True), strict=True):
            self._rows[int(pid)] = self._rows.get(int(pid), 0) + int(rows)
        is_workload, is_kernel = (kind & WORKLOAD) != 0, kind == KERNEL
        self._join_workload(process[is_workload])
        if is_kernel.any():
            # Kernel threads depend on workload I/O; before the first of it, on any program.
            workload = np.flatnonzero(is_workload)
            first_workload = 0 if self._workload_seen else int(workload[0]) if len(workload) else len(kind)
            self._join_workload(process[is_kernel])
            if is_kernel[:first_workload].any():
                self._join_workload(np.array(list(self._rows)))
        self._workload_seen = self._workload_seen or bool(is_workload.any())
        # A use of pages waits for their read.
        waited_on = np.maximum(io["waited_on"], io["use_of"]) if "use_of" in io else io["waited_on"]
        self._join_waits(waited_on, process, source_row)
        if "wakes" in io:
            is_wake = io["wakes"] != NO_EVENT
            woken, _ = self._processes.of(io["wakes"][is_wake], io["flags"][is_wake])
            self._join_pairs(process[is_wake], woken)

    def components(self) -> dict[tuple[int, ...], int]:
        """The processes of each group, and its number of I/Os."""
        members = grouped((self._root(process), process) for process in self._rows)
        return {tuple(group): sum(self._rows[process] for process in group) for group in members.values()}

    def look_up(self, tid: np.ndarray, shard_of: dict[int, int]) -> np.ndarray:
        process, _ = self._processes.of(tid, np.zeros(len(tid), np.int32))
        processes, index = np.unique(process, return_inverse=True)
        return np.array([shard_of.get(pid, 0) for pid in processes.tolist()], np.int64)[index]

    def _join_waits(self, waited_on: np.ndarray, process: np.ndarray, source_row: np.ndarray) -> None:
        self._source = np.concatenate([self._source[-DEPENDENCY_REACH:], source_row])
        self._process = np.concatenate([self._process[-DEPENDENCY_REACH:], process])
        index = np.minimum(np.searchsorted(self._source, waited_on), len(self._source) - 1)
        in_reach = (waited_on >= 0) & (self._source[index] == waited_on)
        self._join_pairs(self._process[index[in_reach]], process[in_reach])

    def _join_pairs(self, waited: np.ndarray, waiting: np.ndarray) -> None:
        for pair in np.unique(np.stack([waited, waiting]), axis=1).T.tolist():
            self._join(*pair)

    def _join_workload(self, processes: np.ndarray) -> None:
        for process in np.unique(processes).tolist():
            self._join(process, _WORKLOAD_GROUP)

    def _join(self, process: int, peer: int) -> None:
        self._parent[self._root(process)] = self._root(peer)

    def _root(self, process: int) -> int:
        while self._parent.setdefault(process, process) != process:
            self._parent[process] = self._parent[self._parent[process]]
            process = self._parent[process]
        return process
