"""Dependencies of a dependent replay, for traces whose capture observed what each I/O waited for.

Each row depends on rows before it, with a delay equal to the captured time between them. So a drive with the captured
latencies gives the captured times, and a faster drive makes no row later (docs/replay.md).
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from blkreel.common.limits import check_state
from blkreel.replay.engine.engine import Batch
from blkreel.traces.format.names import KERNEL_NAME
from blkreel.traces.format.read_ahead import ReadAheadInTime
from blkreel.traces.format.schema import FLAGS
from blkreel.traces.format.trace import Trace

from .computing import divided, on_processors
from .events import NO_EVENT, ReadAheadWindows, is_event
from .history import NONE, THREAD_TIMES, UNKNOWN_NS, History, Outstanding, last_before, last_of_all

AFTER = ("after_1", "after_2", "after_3", "after_4")
DISTANCES = (*AFTER, "behind")
COLUMNS = ("tid", "waited_on", "think_ns")
OPTIONAL_COLUMNS = (*THREAD_TIMES, "queue_ns", "inode")
# Kinds of dependencies, as the run counts them.
KINDS = ("waited", "followed", "caused", "absolute", "reanchored", "truncated", "windowed", "woken", "used")
Threads = Mapping[str, Mapping[str, Any]]  # the trace's metadata key `threads`

PROGRAM, WORKLOAD, KERNEL = 1, 2, 4
_EVENT = 8  # in the history only
_LONG_SLEEP_NS, _SLEEPS = 10**7, 1000
# Of memory: for the last I/O of a thread or process, and for the rows of a batch while its dependencies are found.
_LAST_BYTES, _BATCH_BYTES = 350, 48 << 20


def is_observed(trace: Trace) -> bool:
    """Whether any row of the trace has a `waited_on`. The statistics of the file usually suffice."""
    return trace.greatest("waited_on") >= 0


class Processes:
    """The process of each thread and its kind, from the metadata of the trace."""

    def __init__(self, threads: Threads | None):
        self._pid: dict[int, int] = {}
        self._kernel: set[int] = set()
        for name, thread in (threads or {}).items():
            tid = int(name)
            self._pid[tid] = int(thread.get("pid") or tid)
            if KERNEL_NAME.match(thread.get("comm") or "") and self._pid[tid] == tid:
                self._kernel.add(tid)

    def of(self, tid: np.ndarray, flags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The process and the kind of each row; an unknown thread is a process of its own."""
        threads, index = np.unique(tid, return_inverse=True)
        pids = np.array([self._pid.get(thread, thread) for thread in threads.tolist()], np.int64)
        kernel = np.array([thread in self._kernel for thread in threads.tolist()], bool)
        deferred = (flags & FLAGS["deferred"]) != 0
        kind = np.where(kernel[index], KERNEL, np.where((flags & FLAGS["own"]) != 0, WORKLOAD | PROGRAM, PROGRAM))
        # Deferred I/O does not show where its thread is by then.
        return pids[index], np.where(deferred, KERNEL, kind)


class LongSleeps:
    """The rows of a trace that came after the longest sleeps by the clock: for no I/O, and ended by no thread."""

    def __init__(self) -> None:
        self._row = self._asleep_ns = np.empty(0, np.int64)

    def add(self, source_row: np.ndarray, asleep_ns: np.ndarray) -> None:
        row, asleep_ns = np.append(self._row, source_row), np.append(self._asleep_ns, asleep_ns)
        longest = np.argsort(-asleep_ns, kind="stable")[:_SLEEPS]
        self._row, self._asleep_ns = row[longest], asleep_ns[longest]

    def before(self, row: int) -> int:
        """In ns; 0 if it is not known, or none of the longest."""
        return int(self._asleep_ns[self._row == row].max(initial=0))

    def __add__(self, other: Self) -> Self:
        result = type(self)()
        for part in (self, other):
            result.add(part._row, part._asleep_ns)
        return result


class ThreadTimes:
    """What the threads slept for anything but I/O between their rows, and waited for a processor, of all that time: of
    all programs and of the workload."""

    def __init__(self) -> None:
        self._asleep_ns, self._waiting_ns, self._elapsed_ns = np.zeros((3, 2), np.int64)

    def add(self, history: History, number: np.ndarray, thread_row: np.ndarray, woken: np.ndarray) -> None:
        """thread_row: the previous row of the same thread, or NONE. woken: rows that wait for what ended the sleep."""
        asleep_ns = history.between_ns("slept_ns", thread_row, number)
        asleep_ns = np.where(woken & (asleep_ns != UNKNOWN_NS), 0, asleep_ns)
        has_times = (thread_row >= 0) & (asleep_ns != UNKNOWN_NS)
        elapsed_ns = history.submit_ns(number) - history.submit_ns(thread_row)
        asleep_ns = np.minimum(asleep_ns, elapsed_ns)  # of which idle time may have been removed
        waiting_ns = np.clip(history.between_ns("runnable_ns", thread_row, number), 0, elapsed_ns)
        for which, rows in enumerate((has_times, has_times & ((history.kind(number) & WORKLOAD) != 0))):
            self._asleep_ns[which] += asleep_ns[rows].sum()
            self._waiting_ns[which] += waiting_ns[rows].sum()
            self._elapsed_ns[which] += elapsed_ns[rows].sum()

    def __add__(self, other: Self) -> Self:
        result = type(self)()
        result._asleep_ns = self._asleep_ns + other._asleep_ns
        result._waiting_ns = self._waiting_ns + other._waiting_ns
        result._elapsed_ns = self._elapsed_ns + other._elapsed_ns
        return result

    def shares(self, of_workload: bool) -> dict[str, float | None]:
        """asleep_share and waiting_share; None if they are not known of any row."""
        which = int(of_workload)
        elapsed_ns = int(self._elapsed_ns[which])
        return {f"{name}_share": round(int(times_ns[which]) / elapsed_ns, 4) if elapsed_ns else None
                for name, times_ns in (("asleep", self._asleep_ns), ("waiting", self._waiting_ns))}


class Observed:
    """Dependencies by `waited_on`, for the rows of one lane in their order.

    counts: rows by KINDS. in_time: read-ahead that no row waits for.
    """

    def __init__(self, threads: Threads | None, history: History | None = None, file_bytes: int = 0,
                 compute: float = 1.0, processors: int = 0):
        """file_bytes: of the trace, whose threads may take memory in proportion (state_limit.py); 0: without limit.
        compute: divisor of computing times. processors: that the threads shared; 0: none waits for a processor."""
        self._file_bytes = file_bytes
        self._compute = compute
        self._processors = processors
        self.counts = Counter(dict.fromkeys(KINDS, 0))
        self._processes = Processes(threads)
        self._history = history or History()
        self._outstanding = Outstanding(len(AFTER), self._history.reach)
        self._windows = ReadAheadWindows()
        self.in_time = ReadAheadInTime(self._history.reach)
        self.thread_times, self.sleeps = ThreadTimes(), LongSleeps()
        self._last_of_thread: dict[int, int] = {}
        self._last_wake: dict[int, int] = {}  # by woken thread
        self._last_of_process: dict[int, int] = {}
        self._last_program = self._last_workload = NONE

    @property
    def reach(self) -> int:
        return self._history.reach

    def columns(self, io: Batch, source_row: np.ndarray, submit_ns: np.ndarray) -> Batch:
        """DEPENDENCY_COLUMNS of the next rows. io: tid, flags, latency_ns, COLUMNS, and OPTIONAL_COLUMNS of the trace.

        submit_ns: in the plan. With `use_of`, `used_ns` and `wakes` as Events makes them, some rows are events.
        """
        process, kind = self._processes.of(io["tid"], io["flags"])
        history = self._history
        use_of = io["use_of"] if "use_of" in io else np.full(len(submit_ns), NO_EVENT)
        events = is_event(io)
        is_wake = events & (use_of == NO_EVENT)
        number = history.add(source_row, submit_ns, io["latency_ns"], process, np.where(events, kind | _EVENT, kind),
                             [io.get(name) for name in THREAD_TIMES])
        is_kernel = kind == KERNEL
        deferred = (io["flags"] & FLAGS["deferred"]) != 0

        previous = last_before(io["tid"], number, ~deferred, self._last_of_thread)
        previous = np.where(io["tid"] >= 0, previous, NONE)
        workload, self._last_workload = last_of_all(number, (kind & WORKLOAD) != 0, self._last_workload)
        program, self._last_program = last_of_all(number, (kind & PROGRAM) != 0, self._last_program)
        of_process = last_before(process, number, (kind & PROGRAM) != 0, self._last_of_process)
        if self._file_bytes:
            last_ios = len(self._last_of_thread) + len(self._last_of_process) + len(self._last_wake)
            check_state(_BATCH_BYTES + last_ios * _LAST_BYTES, self._file_bytes, "threads")
        # The trigger of a kernel thread is not captured: it keeps its distance to the workload, or to all programs if
        # no row is marked as workload.
        previous = np.where(is_kernel & ~deferred, np.maximum(previous, np.where(workload >= 0, workload, program)),
                            previous)
        behind = history.in_reach(previous, number)
        behind_ns = np.where(behind >= 0, history.submit_ns(behind), np.iinfo(np.int64).min)

        waited = history.number_of(io["waited_on"])
        if events.any():
            waited[events] = history.completed_at(submit_ns[events] - io["think_ns"][events])
        waited = history.in_reach(waited, number)
        waited_ns = history.complete_ns(waited)
        usable = (waited >= 0) & (waited < number) & (waited_ns >= 0) & (waited_ns <= submit_ns)
        # A completion before the thread's previous row adds nothing to the dependency on that row, except for kernel
        # threads, whose own order is not known.
        newer = usable & (is_kernel | (waited_ns > behind_ns))
        after = np.where(newer, waited, NONE)
        lost = ((previous >= 0) & (behind < 0)) | ((io["waited_on"] >= 0) & ~usable &
                                                  (submit_ns - io["think_ns"] > behind_ns))
        # A thread that wakes others, and never waited for an I/O before, does so at its own pace.
        without = np.flatnonzero((after < 0) & (behind < 0) & ~is_wake)
        workload = np.where(kind[without] & (WORKLOAD | KERNEL), workload[without], NONE)
        for i, latest_of_process, latest_workload in zip(without.tolist(), of_process[without].tolist(),
                                                         workload.tolist(), strict=True):
            after[i], behind[i] = self._cause(int(number[i]), int(process[i]), latest_of_process, latest_workload,
                                              bool(lost[i]))
        caused = np.zeros(len(after), bool)
        caused[without] = behind[without] >= 0
        # What a thread computed before it slept does not get shorter on a faster drive. A kernel thread may follow
        # another thread's row, whose blocked time is another count.
        wake = np.where(is_kernel | deferred, NONE, self._wakes_of(io, number, behind))
        woken = wake >= 0
        computed = np.where((newer | woken) & ~is_kernel & (behind >= 0), behind, NONE)
        besides = self._besides(io, number, after, computed)
        blocked_ns = history.between_ns("blocked_ns", computed, number)
        # A thread sleeps until another one wakes it.
        slept_ns = history.between_ns("slept_ns", computed, number)
        blocked_ns = np.where(woken & (blocked_ns >= 0) & (slept_ns >= 0), blocked_ns + slept_ns, blocked_ns)
        until_ns = np.where(is_kernel | caused | (behind < 0), UNKNOWN_NS, np.where(newer, waited_ns, submit_ns))
        windows = self._windows_used(io, source_row, number, after, until_ns)
        windowed = windows[0] >= 0
        used = self._used(use_of, number, submit_ns, after)
        alone = (after < 0) & (behind < 0)
        after, used = np.where(alone, used, after), np.where(alone, NONE, used)
        dependent = (after >= 0) | (behind >= 0)
        waiting = ((after >= 0) & ~caused) | windowed | woken | (
            (behind >= 0) & ((history.kind(behind) & _EVENT) != 0))
        for name, rows in (("waited", waiting), ("followed", dependent & ~waiting & ~caused), ("caused", caused),
                           ("absolute", ~dependent), ("reanchored", lost & dependent), ("windowed", windowed),
                           ("woken", woken)):
            self.counts[name] += int((rows & ~events).sum())
        self.counts["used"] += int((use_of != NO_EVENT).sum())
        # A thread that waited for nothing since its previous row was not blocked since.
        blocked_ns = np.where(windowed & ~newer & ~woken, 0, blocked_ns)
        parents = [np.where(parent >= 0, parent, window)
                   for parent, window in zip((after, *besides), reversed(windows), strict=True)]
        parents[-2] = np.where(woken, wake, parents[-2])
        columns = distances(history, number, submit_ns, parents, behind, blocked_ns)
        # A thread computes until it reaches the page, and goes on as soon as that is there.
        reached = (use_of != NO_EVENT) & ~woken & (after < 0) & (behind >= 0)
        columns["compute_ns"] = np.where(reached, columns["delay_ns"], columns["compute_ns"])
        columns["delay_ns"] = np.where(reached, 0, columns["delay_ns"])
        columns[AFTER[-1]] = np.where(used >= 0, number - used, columns[AFTER[-1]]).astype(np.int32)
        # The distance of a kernel thread to the workload is set by timers and limits of the kernel, not by computing.
        thread_row = np.where(~is_kernel & ~caused, behind, NONE)
        self.thread_times.add(history, number, thread_row, woken)
        self._add_sleeps(io, source_row, number, thread_row, wake, columns["delay_ns"])
        has_times = np.zeros(len(number), bool)
        if self._processors:
            columns, has_times = on_processors(columns, self._processors, self._compute, history, number, thread_row,
                                               woken)
        if self._compute == 1:
            return columns
        return divided(columns, self._compute, history, number, thread_row, ~is_kernel & ~has_times)

    def _add_sleeps(self, io: Batch, source_row: np.ndarray, number: np.ndarray, thread_row: np.ndarray,
                    wake: np.ndarray, delay_ns: np.ndarray) -> None:
        """thread_row: the previous row of the same thread, or NONE: of its first row, what it slept until then counts
        as far as the delay goes. wake: the wake-up by another thread that ended the sleep, or NONE: what that thread
        slept counts."""
        if "slept_ns" not in io or not len(number):
            return
        between_ns = self._history.between_ns("slept_ns", thread_row, number)
        asleep_ns = np.where(thread_row >= 0, between_ns, np.minimum(io["slept_ns"], delay_ns))
        at = wake - number[0]
        asleep_ns = np.where(wake >= 0, np.where(at >= 0, asleep_ns[np.maximum(at, 0)], 0), asleep_ns)
        long = (asleep_ns >= _LONG_SLEEP_NS) & ~is_event(io)
        self.sleeps.add(source_row[long], asleep_ns[long])

    def _besides(self, io: Batch, number: np.ndarray, after: np.ndarray, behind: np.ndarray) -> list[np.ndarray]:
        """Completions that the rows waited for besides `after`. behind: the thread's previous row, or NONE."""
        history, outstanding = self._history, self._outstanding
        submit_ns, complete_ns = history.submit_ns(number), history.complete_ns(number)
        # No thread is known to wait for read-ahead, except for the I/O that woke it.
        selected = ((io["tid"] >= 0) & (complete_ns != UNKNOWN_NS) & ~is_event(io) &
                    ((io["flags"] & (FLAGS["deferred"] | FLAGS["read_ahead"])) == 0))
        outstanding.add(number, io["tid"], submit_ns, complete_ns, selected)
        blocked_ns = history.between_ns("blocked_ns", behind, number)
        alone = (blocked_ns < 0) | ((io["flags"] & FLAGS["inherited"]) != 0)
        woken_ns = history.complete_ns(after)
        asleep_ns = np.maximum(woken_ns - blocked_ns, history.submit_ns(behind))
        # One more than the plan has room for, to count the rows that have more.
        *besides, beyond = outstanding.besides(np.where(alone, NONE, after), number, io["tid"], asleep_ns, woken_ns)
        self.counts["truncated"] += int((beyond >= 0).sum())
        outstanding.drop(history.rows)
        return besides

    def _wakes_of(self, io: Batch, number: np.ndarray, behind: np.ndarray) -> np.ndarray:
        """The wake-up of each row's thread since its previous row, which is `behind`; NONE without one."""
        if "wakes" not in io:
            return np.full(len(number), NONE)
        # Of each row first its own thread, and then the thread that it wakes.
        tid, wakes = np.stack([io["tid"], io["wakes"]], 1).ravel(), np.repeat(number, 2)
        is_wake = np.stack([np.zeros(len(number), bool), io["wakes"] != NO_EVENT], 1).ravel()
        latest = last_before(tid, wakes, is_wake, self._last_wake)[::2]
        return self._history.in_reach(np.where((behind >= 0) & (latest > behind), latest, NONE), number)

    def _used(self, use_of: np.ndarray, number: np.ndarray, submit_ns: np.ndarray, after: np.ndarray) -> np.ndarray:
        """The read whose pages each row uses, NONE if it is `after` or the row is an I/O."""
        history = self._history
        used = history.in_reach(history.number_of(use_of), number)
        complete_ns = history.complete_ns(used)
        return np.where((used >= 0) & (used != after) & (complete_ns >= 0) & (complete_ns <= submit_ns), used, NONE)

    def _windows_used(self, io: Batch, source_row: np.ndarray, number: np.ndarray, after: np.ndarray,
                      until_ns: np.ndarray) -> list[np.ndarray]:
        """Read-ahead besides `after` that the threads of the rows had used, latest completion first, in as many arrays
        as AFTER.

        until_ns: completions up to this time do not change when the row is due on the drive of the trace. With uses
        of pages, which tell more, none.
        """
        history = self._history
        result = np.full((len(AFTER), len(number)), NONE, np.int64)
        if "use_of" in io:
            unknown = ~is_event(io) & (io["used_ns"] == -1)
            self.in_time.add(source_row, np.where(unknown, io["flags"], 0), io["waited_on"])
            return list(result)
        used_rows = []
        for i, rows in self._windows.used(io, source_row).items():
            parents = history.in_reach(history.number_of(np.array(rows)), number[i])
            done_ns = np.where(parents >= 0, history.complete_ns(parents), UNKNOWN_NS)
            in_time = (done_ns >= 0) & (done_ns <= until_ns[i]) & (parents != after[i])
            if in_time.any():
                last = np.argsort(np.where(in_time, -done_ns, 0), kind="stable")[:min(len(AFTER), in_time.sum())]
                result[:len(last), i] = parents[last]
                used_rows += rows
        waited_on = io["waited_on"]
        self.in_time.add(source_row, io["flags"], np.append(waited_on[waited_on >= 0], used_rows).astype(np.int64))
        return list(result)

    def _cause(self, number: int, process: int, of_process: int, workload: int, lost: bool) -> tuple[int, int]:
        """(after, behind) of a thread's first row: the last I/O of its process, else the last workload I/O.

        lost: its real dependency is out of reach. Then the row right before it in the lane is later than that.
        """
        lowest = max(0, number - self._history.reach)
        if of_process >= lowest:
            return self._history.last_done(number, of_process, PROGRAM, process), of_process
        if workload >= lowest:
            return self._history.last_done(number, workload, WORKLOAD, None), workload
        return (NONE, number - 1) if lost and number else (NONE, NONE)


def distances(history: History, number: np.ndarray, submit_ns: np.ndarray, after: list[np.ndarray],
              behind: np.ndarray, blocked_ns: np.ndarray | None = None) -> Batch:
    """The engine's columns: the distance of each dependency (0: none), and the time since the latest of them.

    blocked_ns: how long the thread was blocked since the row `behind`, so that the rest is computing; UNKNOWN_NS: it
    is not known, or that row is another thread's.
    """
    latest_ns = np.where(behind >= 0, history.submit_ns(behind), np.iinfo(np.int64).min)
    columns = {name: np.zeros(len(number), np.int32) for name in DISTANCES}
    for name, parent in zip(AFTER, after, strict=False):
        latest_ns = np.maximum(latest_ns, np.where(parent >= 0, history.complete_ns(parent), latest_ns))
        columns[name] = np.where(parent >= 0, number - parent, 0).astype(np.int32)
    columns["behind"] = np.where(behind >= 0, number - behind, 0).astype(np.int32)
    has_any = latest_ns > np.iinfo(np.int64).min
    compute_ns = none = np.zeros(len(number), np.int64)
    if blocked_ns is not None:
        compute_ns = np.where(blocked_ns >= 0, latest_ns - history.submit_ns(behind) - blocked_ns, 0).clip(0)
    return {**columns, "compute_ns": compute_ns, "compute_cpu_ns": none, "delay_cpu_ns": none,
            "delay_ns": np.where(has_any, submit_ns - np.where(has_any, latest_ns, 0), 0)}

