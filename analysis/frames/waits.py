"""The waits for I/O of each thread of an application, from the rows of a trace."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blkreel.common.errors import UsageError
from blkreel.traces.format.names import KERNEL_NAME
from blkreel.traces.format.schema import FLAGS, OPS
from blkreel.traces.format.trace import Trace

Times = npt.NDArray[np.int64]

MOST_ROWS = 20_000_000
_COLUMNS = ["submit_ns", "latency_ns", "queue_ns", "op", "flags", "tid", "waited_on", "think_ns"]


@dataclass(frozen=True)
class ThreadWaits:
    """The waits of one thread in order, at least one, which do not overlap. row: of the I/O that each waited for."""

    tid: int
    begin_ns: Times
    end_ns: Times
    row: npt.NDArray[np.int64]

    def before(self, time_ns: Times) -> Times:
        """The time waited before each of these times."""
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.end_ns - self.begin_ns)])
        # The waits that began, of the last of which the part counts that is over.
        count = np.searchsorted(self.begin_ns, time_ns, "right")
        open_ns = np.where(count > 0, np.maximum(self.end_ns[count - 1] - time_ns, 0), 0)
        waited: Times = total[count] - open_ns
        return waited


@dataclass(frozen=True)
class Waits:
    """threads: those with waits. evidence: "blocked" (the time each thread was blocked is recorded), "woken" (the
    completion that woke it is), or "assumed" (each read is taken as one that its thread waited for).
    program: whose threads. lost: events that the capture lost."""

    threads: tuple[ThreadWaits, ...]
    evidence: str
    program: str
    lost: int

    @property
    def words(self) -> str:
        return {"blocked": "the trace records for how long each thread was blocked by I/O",
                "woken": "the trace records which completion woke each thread; the wait is taken from the submission "
                         "of that I/O on",
                "assumed": "the trace records no waits: each read is assumed to be one that its thread waited for"
                }[self.evidence]


def waits_of(trace: Trace, process: str | None, program: str | None, pid: int | None) -> Waits:
    """The waits of the threads of one program.

    process: name or pid that the user gave; None: the program or pid of the frame log if the trace has it, else the
    workload of the capture, else all programs. Raises UsageError for an unknown process or too many rows.
    """
    if trace.rows > MOST_ROWS:
        raise UsageError(f"{trace.name}: {trace.rows:,} I/Os are too many to join with frames",
                         "cut out the time of the frames: blkreel slice TRACE --from TIME --to TIME -o PART")
    has_blocked = "blocked_ns" in trace.schema.names
    table = trace.table([*_COLUMNS, *(["blocked_ns"] if has_blocked else [])])
    columns = {name: table[name].to_numpy() for name in table.column_names}
    tids, words = _tids_of(trace, columns, process, program, pid)
    has_waits = bool((columns["waited_on"] >= 0).any())
    evidence = "assumed" if not has_waits else "blocked" if has_blocked else "woken"
    threads = [_of_thread(tid, rows, columns, has_blocked, has_waits)
               for tid, rows in _rows_by_thread(columns["tid"], tids)]
    lost = (trace.metadata.get("lost") or {}).get("total") or 0
    return Waits(tuple(thread for thread in threads if len(thread.row)), evidence, words, lost)


def _tids_of(trace: Trace, columns: Mapping[str, Any], process: str | None, program: str | None,
             pid: int | None) -> tuple[set[int], str]:
    """(threads of the program, its name in words)."""
    threads = trace.threads
    present = set(np.unique(columns["tid"]).tolist()) - {-1}

    def named(wanted: str) -> set[int]:
        short = wanted.lower().removesuffix(".exe")
        return {int(tid) for tid, thread in threads.items() if int(tid) in present and (
            wanted == str(thread.get("pid")) or any(_same(short, name) for name in (
                thread.get("process"), thread.get("comm"))))}

    if process is not None:
        if not (tids := named(process)):
            names = sorted({str(thread.get("process") or thread.get("comm")) for thread in threads.values()})[:8]
            raise UsageError(f"{trace.name}: no I/O of a process {process!r}", f"name one of: {', '.join(names)}")
        return tids, process
    for wanted in (str(pid) if pid is not None else None, program):
        if wanted and (tids := named(wanted)):
            return tids, program or wanted
    is_own = (columns["flags"] & FLAGS["own"]) != 0
    if is_own.any():
        return set(np.unique(columns["tid"][is_own]).tolist()) - {-1}, "the captured workload"
    kernel = {int(tid) for tid, thread in threads.items() if KERNEL_NAME.match(str(thread.get("comm") or ""))}
    return present - kernel, "all programs"


def _same(wanted: str, name: Any) -> bool:
    """Whether a name of the kernel, cut to 15 bytes, is this one."""
    short = str(name or "").lower().removesuffix(".exe")
    return bool(short) and (short == wanted or (len(short) == 15 and wanted.startswith(short)))


def _rows_by_thread(tid: npt.NDArray[np.int32], wanted: set[int]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    rows = np.flatnonzero(np.isin(tid, list(wanted)))
    order = rows[np.argsort(tid[rows], kind="stable")]
    if not len(order):
        return []
    starts = np.flatnonzero(np.diff(tid[order], prepend=tid[order[0]] - 1))
    return [(int(tid[part[0]]), part) for part in np.split(order, starts[1:])]


def _of_thread(tid: int, rows: npt.NDArray[np.int64], columns: Mapping[str, Any], has_blocked: bool,
               has_waits: bool) -> ThreadWaits:
    """Of a thread with these rows.

    A row names the completion that last woke its thread. That wait ended think_ns before the submission, and lasted
    for what the blocked time grew since the row before, at most from the entry of that I/O on. If that was not the
    thread's own last read, the blocked time is first that of the read. The last I/O of a thread has no row after it: a
    read is then assumed to have been waited for.
    """
    submit, think, latency = (columns[name][rows] for name in ("submit_ns", "think_ns", "latency_ns"))
    entry = submit - np.maximum(columns["queue_ns"][rows], 0)
    is_read = (columns["op"][rows] == OPS["read"]) & (latency >= 0) & (
        (columns["flags"][rows] & FLAGS["read_ahead"]) == 0)
    if not has_waits:
        begin, end, row = entry[is_read], (submit + latency)[is_read], rows[is_read]
        return _apart(tid, begin, end, row)
    cause = columns["waited_on"][rows]
    is_woken = cause >= 0
    end = (submit - think)[is_woken]
    of_cause = columns["submit_ns"][cause[is_woken]] - np.maximum(columns["queue_ns"][cause[is_woken]], 0)
    begin = np.minimum(of_cause, end)
    row = cause[is_woken]
    if has_blocked:
        blocked = columns["blocked_ns"][rows]
        before = np.concatenate([[0], blocked[:-1]])
        # A value smaller than the one before began again.
        grown = np.where(blocked < before, blocked, blocked - before)
        is_known = (blocked >= 0) & np.concatenate([[True], blocked[:-1] >= 0])
        grown = np.where(is_known, np.maximum(grown, 0), 0)
        # A wake-up by another thread hides the completion of the thread's own read, but not the time blocked by it.
        done = np.concatenate([[0], (submit + latency)[:-1]])
        is_own = np.concatenate([[False], is_read[:-1]]) & (done <= submit) & (
            cause != np.concatenate([[-1], rows[:-1]]))
        own = np.where(is_own, np.minimum(grown, np.concatenate([[0], latency[:-1]])), 0)
        # Blocked time before this I/O entered was for others, at times that are not recorded.
        begin = np.where(is_known[is_woken], np.maximum(end - (grown - own)[is_woken], begin), begin)
        has_own = own > 0
        begin = np.concatenate([begin, (done - own)[has_own]])
        end = np.concatenate([end, done[has_own]])
        row = np.concatenate([row, np.concatenate([[-1], rows[:-1]])[has_own]])
    if is_read[-1] and not (cause == rows[-1]).any():
        begin, end = np.append(begin, entry[-1]), np.append(end, submit[-1] + latency[-1])
        row = np.append(row, rows[-1])
    return _apart(tid, begin, end, row)


def _apart(tid: int, begin: Times, end: Times, row: npt.NDArray[np.int64]) -> ThreadWaits:
    """Waits in order, each from the end of the one before on; those of no time are left out."""
    order = np.argsort(end, kind="stable")
    order = order[end[order] > begin[order]]
    begin, end, row = begin[order], end[order], row[order]
    if len(end):
        begin = np.maximum(begin, np.concatenate([[begin[0]], end[:-1]]))
    keep = end > begin
    return ThreadWaits(tid, begin[keep], end[keep], row[keep])
