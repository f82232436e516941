"""What each I/O of a trace waits for in a dependent replay, where the capture observed it.

The captured times decide nothing but how long after its anchors a row comes: every row is put behind something that
was there before it, by the time that lay between the two. So a drive that serves each I/O as fast as the source's
gives the captured times back, and one that serves them faster makes nothing later (docs/replay.md).
"""

import re
from collections import Counter

import numpy as np
import pyarrow.parquet as pq

from blkreel.traces.schema import FLAGS

from .history import NONE, History, last_before, last_of_all

ANCHORS = ("after_1", "after_2", "after_3", "after_4", "behind")
COLUMNS = ("tid", "waited_on", "think_ns")
# How rows were anchored, as the run tells it.
KINDS = ("waited", "followed", "caused", "absolute", "reanchored")

PROGRAM, OWN, KERNEL = 1, 2, 4
# Threads of the kernel that issue I/O on behalf of others. A trace names threads, it does not tell them apart.
_KERNEL_NAME = re.compile(r"(kworker/|jbd2/|ext4lazyinit|kswapd|kcompactd|khugepaged|loop\d|dmcrypt_write|dm_|kdmflush|"
                          r"md\d+_|raid\d|bcache|xfsaild/|xfs-|xfs_|btrfs-|btrfs_|f2fs_|txg_|z_wr_|kthreadd|swapper/)")


def is_observed(trace) -> bool:
    """Whether any row of the trace says what it waited for. Mostly the file's statistics tell."""
    with pq.ParquetFile(trace.path) as file:
        groups, column = file.metadata, file.schema_arrow.get_field_index("waited_on")
        told = [groups.row_group(i).column(column).statistics for i in range(groups.num_row_groups)]
    if all(one is not None and one.has_min_max for one in told):
        return any(one.max >= 0 for one in told)
    return any((batch["waited_on"].to_numpy() >= 0).any() for batch in trace.batches(["waited_on"]))


class Processes:
    """Of which process, and of which kind, a thread is, by the metadata of the trace."""

    def __init__(self, threads: dict | None):
        self._pid, self._kernel = {}, set()
        for tid, about in (threads or {}).items():
            self._pid[int(tid)] = int(about.get("pid") or tid)
            if _KERNEL_NAME.match(about.get("comm") or "") and self._pid[int(tid)] == int(tid):
                self._kernel.add(int(tid))

    def of(self, tid: np.ndarray, flags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The process of each row, and its kind; a thread that nobody knows is a program of its own."""
        threads, index = np.unique(tid, return_inverse=True)
        pids = np.array([self._pid.get(one, one) for one in threads.tolist()], np.int64)
        kernel = np.array([one in self._kernel for one in threads.tolist()], bool)
        deferred = (flags & FLAGS["deferred"]) != 0
        kind = np.where(kernel[index], KERNEL, np.where((flags & FLAGS["own"]) != 0, OWN | PROGRAM, PROGRAM))
        # What a kernel thread issues later on behalf of a thread says nothing of where that thread is by then.
        return pids[index], np.where(deferred, KERNEL, kind)


class Observed:
    """Anchors by `waited_on`, for the rows of one lane in their order. counts: by KINDS, how rows were anchored."""

    def __init__(self, threads: dict | None, history: History | None = None):
        self.counts = Counter(dict.fromkeys(KINDS, 0))
        self._processes = Processes(threads)
        self._history = history or History()
        self._last_of_thread: dict[int, int] = {}
        self._last_of_process: dict[int, int] = {}
        self._last_program = self._last_own = NONE

    @property
    def reach(self) -> int:
        return self._history.reach

    def anchor(self, io: dict, source_row, submit_ns) -> dict[str, np.ndarray]:
        """The anchors of the next rows; io has tid, flags, latency_ns, waited_on, think_ns. submit_ns is the plan's."""
        process, kind = self._processes.of(io["tid"], io["flags"])
        history = self._history
        number = history.add(source_row, submit_ns, io["latency_ns"], process, kind)
        kernel = kind == KERNEL
        deferred = (io["flags"] & FLAGS["deferred"]) != 0

        previous = last_before(io["tid"], number, ~deferred, self._last_of_thread)
        previous = np.where(io["tid"] >= 0, previous, NONE)
        own, self._last_own = last_of_all(number, (kind & OWN) != 0, self._last_own)
        program, self._last_program = last_of_all(number, (kind & PROGRAM) != 0, self._last_program)
        of_process = last_before(process, number, (kind & PROGRAM) != 0, self._last_of_process)
        # Nobody tells what makes a kernel thread begin: it stays where it was beside what was captured, or beside all
        # programs where nothing is marked as that.
        previous = np.where(kernel & ~deferred, np.maximum(previous, np.where(own >= 0, own, program)), previous)
        behind = history.in_reach(previous, number)
        behind_ns = np.where(behind >= 0, history.submit_ns(behind), np.iinfo(np.int64).min)

        waited = history.in_reach(history.number_of(io["waited_on"]), number)
        waited_ns = history.complete_ns(waited)
        usable = (waited >= 0) & (waited < number) & (waited_ns >= 0) & (waited_ns <= submit_ns)
        # What was done before the thread's previous row is behind it already. Of a kernel thread's that is not known.
        newer = usable & (kernel | (waited_ns > behind_ns))
        after = np.where(newer, waited, NONE)
        lost = ((previous >= 0) & (behind < 0)) | ((io["waited_on"] >= 0) & ~usable &
                                                  (submit_ns - io["think_ns"] > behind_ns))
        without = np.flatnonzero((after < 0) & (behind < 0))
        own = np.where(kind[without] & (OWN | KERNEL), own[without], NONE)
        for i, latest_of_process, latest_own in zip(without.tolist(), of_process[without].tolist(), own.tolist(),
                                                    strict=True):
            after[i], behind[i] = self._cause(int(number[i]), int(process[i]), latest_of_process, latest_own,
                                              bool(lost[i]))
        self._count(after, behind, without, lost)
        return distances(history, number, submit_ns, [after], behind)

    def _cause(self, number, process, of_process, own, lost) -> tuple[int, int]:
        """What the first row of a thread comes after: the last I/O of its process, or else of what was captured."""
        for latest, only in ((of_process, process), (own, None)):
            if latest >= max(0, number - self._history.reach):
                return self._history.last_done(number, latest, PROGRAM if only is not None else OWN, only), latest
        # It did follow something that is out of reach: then the row right before it in the lane was later still.
        return (NONE, number - 1) if lost and number else (NONE, NONE)

    def _count(self, after, behind, without, lost):
        caused = np.zeros(len(after), bool)
        caused[without] = behind[without] >= 0
        anchored = (after >= 0) | (behind >= 0)
        self.counts["waited"] += int(((after >= 0) & ~caused).sum())
        self.counts["followed"] += int(((after < 0) & anchored & ~caused).sum())
        self.counts["caused"] += int(caused.sum())
        self.counts["absolute"] += int((~anchored).sum())
        self.counts["reanchored"] += int((lost & anchored).sum())


def distances(history: History, number, submit_ns, after, behind) -> dict[str, np.ndarray]:
    """The engine's columns: how far back each anchor is (0: none), and the time since the latest of them."""
    latest_ns = np.where(behind >= 0, history.submit_ns(behind), np.iinfo(np.int64).min)
    columns = {name: np.zeros(len(number), np.int32) for name in ANCHORS}
    for name, parent in zip(ANCHORS[:4], after, strict=False):
        latest_ns = np.maximum(latest_ns, np.where(parent >= 0, history.complete_ns(parent), latest_ns))
        columns[name] = np.where(parent >= 0, number - parent, 0).astype(np.int32)
    columns["behind"] = np.where(behind >= 0, number - behind, 0).astype(np.int32)
    anchored = latest_ns > np.iinfo(np.int64).min
    return {**columns, "delay_ns": np.where(anchored, submit_ns - np.where(anchored, latest_ns, 0), 0)}
