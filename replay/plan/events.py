"""What threads did between their I/Os: uses of pages, wake-ups, and uses that windows of read-ahead show.

First uses of pages are rows of a plan: they are not issued, and wait for the read whose pages they use. So are wake-ups
of a thread by another one: they are rows of the latter, and the next row of the former waits for them.

Of a trace without uses: the kernel reads the next window of a file ahead when a thread reaches the first page of the
last one (page_cache_async_ra). So the thread had used the window before the last one: if that was in time on the drive
of the trace, no row shows it, but on a slower drive the thread waits for it, and the kernel has at most two windows of
the file in flight (docs/replay.md).
"""

from dataclasses import dataclass, field

import numpy as np

from blkreel.replay.engine.engine import Batch
from blkreel.traces.format.schema import FLAGS, NOT_USED, OPS, USE_COLUMNS, USER_COLUMNS, WAKE_COLUMNS

from .history import THREAD_TIMES

NO_EVENT = -1
_OF_EVENTS = {*USE_COLUMNS, *USER_COLUMNS, *WAKE_COLUMNS} - {"used_ns"}


def is_event(io: Batch) -> np.ndarray:
    """Which rows are no I/Os."""
    events = np.zeros(len(io["submit_ns"]), bool)
    for name in ("use_of", "wakes"):
        if name in io:
            events |= io[name] != NO_EVENT
    return events


class Events:
    """Puts uses and wake-ups into the rows of a trace, in the order of time. Takes all rows of the devices in batches.

    complete: whether the recording has all uses, so that read-ahead without one was not used.
    """

    def __init__(self, complete: bool = True) -> None:
        self._complete = complete
        self._waiting: Batch | None = None  # uses after the last row so far
        self._last_row = -1
        self._removed_ns = 0

    def merged(self, io: Batch, source_row: np.ndarray, submit_ns: np.ndarray) -> tuple[Batch, np.ndarray, np.ndarray]:
        """The rows with the events up to the last of them. Wake-ups before the batch are left out.

        io: columns of the trace with USE_COLUMNS or WAKE_COLUMNS, and with THREAD_TIMES and USER_COLUMNS as far as it
        has them. submit_ns: after the idle policy.

        Result: io, of these columns with used_ns, and with `use_of`: the row whose pages a use is of; and `wakes`: the
        thread that a wake-up wakes; NO_EVENT for other rows, and without the columns of the trace neither.
        source_row, for an event the last row before it; and submit_ns.
        """
        ios = {name: column for name, column in io.items() if name not in _OF_EVENTS}
        none = np.full(len(submit_ns), NO_EVENT)
        parts = [ios]
        if "used_ns" in io:
            ios["use_of"] = none
        if "woken_ns" in io:
            ios["wakes"] = none
            parts.append(_wakes(io, ios))
        if "used_ns" in io:
            parts.append(self._taken(_uses(io, ios, source_row), io["submit_ns"][-1]))
        columns = {name: np.concatenate([part[name] for part in parts]) for name in ios}
        events = np.arange(len(columns["submit_ns"])) >= len(submit_ns)
        # An event comes before a row that its thread submitted at the same time.
        order = np.lexsort((~events, columns["submit_ns"]))
        columns, events = {name: column[order] for name, column in columns.items()}, events[order]
        row, removed_ns, moved_ns = np.empty((3, len(order)), np.int64)
        row[~events], removed_ns[~events], moved_ns[~events] = source_row, io["idle_removed_ns"], submit_ns
        row[events] = removed_ns[events] = 0
        moved_ns[events] = np.iinfo(np.int64).max
        row = np.maximum.accumulate(np.maximum(row, self._last_row))
        removed_ns = np.maximum.accumulate(np.maximum(removed_ns, self._removed_ns))
        next_ns = np.minimum.accumulate(moved_ns[::-1])[::-1]
        moved_ns = np.where(events, np.minimum(columns["submit_ns"] - removed_ns, next_ns), moved_ns)
        self._last_row, self._removed_ns = int(row[-1]), int(removed_ns[-1])
        if not self._complete and "used_ns" in columns:
            columns["used_ns"] = np.where(columns["used_ns"] == NOT_USED, -1, columns["used_ns"])
        return columns | {"idle_removed_ns": removed_ns}, row, moved_ns

    def _taken(self, uses: Batch, until_ns: int) -> Batch:
        """The uses up to this time, in the order of time; later ones are kept."""
        if self._waiting is not None:
            uses = {name: np.concatenate([self._waiting[name], column]) for name, column in uses.items()}
        order = np.argsort(uses["submit_ns"], kind="stable")
        count = int(np.searchsorted(uses["submit_ns"][order], until_ns, "right"))
        self._waiting = {name: column[order[count:]] for name, column in uses.items()}
        return {name: column[order[:count]] for name, column in uses.items()}


def _uses(io: Batch, ios: Batch, source_row: np.ndarray) -> Batch:
    at = np.flatnonzero((io["latency_ns"] >= 0) & (io["used_ns"] >= io["latency_ns"]))
    uses = _events(io, ios, at, "used", io["submit_ns"][at] + io["used_ns"][at])
    return uses | {"use_of": source_row[at]}


def _wakes(io: Batch, ios: Batch) -> Batch:
    at_ns = io["submit_ns"] - io["woken_ns"]
    at = np.flatnonzero((io["woken_ns"] >= 0) & (at_ns >= io["submit_ns"][0]))
    return _events(io, ios, at, "woken", at_ns[at]) | {"wakes": io["tid"][at]}


def _events(io: Batch, ios: Batch, at: np.ndarray, kind: str, at_ns: np.ndarray) -> Batch:
    """Rows of what other threads did at these times, that the I/Os `at` have in their columns KIND_*."""
    events = {name: column[at] for name, column in ios.items()}
    unknown = np.full(len(io["submit_ns"]), -1)
    times = {name: io.get(f"{kind}_{name}", unknown)[at] for name in THREAD_TIMES if name in events}
    return events | times | {
        "submit_ns": at_ns, "latency_ns": np.zeros(len(at), np.int64), "tid": io[f"{kind}_by"][at],
        "waited_on": np.full(len(at), -1, np.int64), "flags": events["flags"] & FLAGS["own"],
        "think_ns": io[f"{kind}_think_ns"][at]}


# The last files of all threads: a thread that comes back to one after so many others begins anew.
_MAX_FILES = 4096
# Requests that the kernel collects before it issues them (BLK_MAX_REQUEST_COUNT). What comes after them in one window
# cannot be told from the next window.
_COLLECTED_ROWS = 32


@dataclass(slots=True)
class _File:
    """Where read-ahead of a file by a thread has got to. Windows: rows of the trace."""

    end_bytes: int = 0
    submit_ns: int = 0  # of the last row
    last: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)


class ReadAheadWindows:
    """The windows of each file and thread, for the rows of one lane in their order."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, int, int], _File] = {}

    def used(self, io: Batch, source_row: np.ndarray) -> dict[int, list[int]]:
        """For rows of the batch by index: the rows of the trace that their threads had used when they were submitted.

        io: submit_ns as captured, offset_bytes, length_bytes, op, flags, device, tid, and queue_ns and inode if the
        trace has them. Without queue_ns, which tells the rows of one window from those of the next, nothing is known.
        """
        if "queue_ns" not in io:
            return {}
        flags = io["flags"] & (FLAGS["read_ahead"] | FLAGS["deferred"])
        index = np.flatnonzero((flags == FLAGS["read_ahead"]) & (io["op"] == OPS["read"]) & (io["tid"] >= 0) &
                               (io["queue_ns"] >= 0))
        inode = io["inode"][index] if "inode" in io else np.zeros(len(index), np.int64)
        used_rows: dict[int, list[int]] = {}
        for i, row, tid, device, file, submit_ns, queue_ns, offset, length in zip(
                index.tolist(), source_row[index].tolist(), io["tid"][index].tolist(), io["device"][index].tolist(),
                inode.tolist(), io["submit_ns"][index].tolist(), io["queue_ns"][index].tolist(),
                io["offset_bytes"][index].tolist(), io["length_bytes"][index].tolist(), strict=True):
            state = self._files.pop((tid, device, file), None)
            # A file that has been read on for three windows goes on in another extent.
            if state is None or (state.end_bytes != offset and not (state.before and file > 0)):
                state = _File()
            elif state.end_bytes != offset or submit_ns - queue_ns > state.submit_ns:
                # It entered the queue after the row before it was issued: another window.
                if state.before and len(state.last) < _COLLECTED_ROWS:
                    used_rows[i] = state.before
                state.before, state.last = state.last, []
            state.last.append(row)
            state.end_bytes, state.submit_ns = offset + length, submit_ns
            self._files[tid, device, file] = state  # the last to be dropped
            if len(self._files) > _MAX_FILES:
                del self._files[next(iter(self._files))]
        return used_rows
