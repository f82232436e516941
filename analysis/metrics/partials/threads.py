"""I/O sums per thread, and the sequential part of them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .record import Record
from .timeline import DATA_CLASSES

# struct stream of native/accumulator.h: sums, then the start of the first I/O in this part and the end of the last.
SUMS = ("ops", "bytes", "service_ns", "sequential_ops", "sequential_bytes")
_ENDS = ("first_offset", "first_bytes", "end_offset")
_COLUMNS = len(SUMS) + len(_ENDS)
_SUM_NAMES = [f"{kind}_{name}" for kind in DATA_CLASSES for name in SUMS]
_FIRST = {name: len(SUMS) + index for index, name in enumerate(_ENDS)}


ProcessSums = dict[str, Any]  # name, pid, threads, and the fields of ThreadSums


@dataclass
class ThreadSums:
    """An I/O is sequential if it begins at the byte where the previous I/O of its class, thread and drive ended."""

    read_ops: int = 0
    read_bytes: int = 0
    read_service_ns: int = 0
    read_sequential_ops: int = 0
    read_sequential_bytes: int = 0
    write_ops: int = 0
    write_bytes: int = 0
    write_service_ns: int = 0
    write_sequential_ops: int = 0
    write_sequential_bytes: int = 0


@dataclass(eq=False)
class Threads(Record):
    """keys: of a thread on a drive, tid * 65536 + drive, ascending. rows: (keys, 2, 8), reads and writes of each in the
    columns of native's struct stream."""

    keys: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    rows: np.ndarray = field(default_factory=lambda: np.empty((0, len(DATA_CLASSES), _COLUMNS), np.int64))

    @classmethod
    def of_native(cls, numbers: np.ndarray) -> "Threads":
        """From PART_THREADS of native/metrics.h."""
        table = numbers.reshape(-1, 1 + len(DATA_CLASSES) * _COLUMNS)
        order = np.argsort(table[:, 0], kind="stable")
        return cls(table[order, 0], table[order, 1:].reshape(-1, len(DATA_CLASSES), _COLUMNS))

    @property
    def sums(self) -> dict[int, ThreadSums]:
        """By thread id."""
        tids, sums = self._by_tid()
        return {tid: ThreadSums(**dict(zip(_SUM_NAMES, values, strict=True)))
                for tid, values in zip(tids, sums.tolist(), strict=True)}

    def _by_tid(self) -> tuple[list[int], np.ndarray]:
        """The thread ids, and the sums of each over all drives."""
        tids, index = np.unique(self.keys >> 16, return_inverse=True)
        return tids.tolist(), _added(self.rows[:, :, :len(SUMS)].reshape(-1, len(_SUM_NAMES)), index, len(tids))

    def sequential(self, kind: int) -> tuple[int, int]:
        """(number, bytes) of the sequential I/Os of a class, an index into DATA_CLASSES."""
        ops, moved = (int(self.rows[:, kind, SUMS.index(f"sequential_{name}")].sum()) for name in ("ops", "bytes"))
        return ops, moved

    def join(self, later: "Threads") -> "Threads":
        """Join two consecutive parts of one run."""
        keys = np.union1d(self.keys, later.keys)
        before, after = (_at(threads, keys) for threads in (self, later))
        rows = before.copy()
        rows[:, :, :len(SUMS)] += after[:, :, :len(SUMS)]
        in_both = (before[..., _FIRST["first_offset"]] >= 0) & (after[..., _FIRST["first_offset"]] >= 0)
        continues = in_both & (after[..., _FIRST["first_offset"]] == before[..., _FIRST["end_offset"]])
        rows[..., SUMS.index("sequential_ops")] += continues
        rows[..., SUMS.index("sequential_bytes")] += continues * after[..., _FIRST["first_bytes"]]
        fresh = before[..., _FIRST["first_offset"]] < 0
        first, end = slice(len(SUMS), len(SUMS) + 2), slice(len(SUMS) + 2, None)
        rows[fresh, first] = after[fresh, first]
        ended = after[..., _FIRST["first_offset"]] >= 0
        rows[ended, end] = after[ended, end]
        return Threads(keys, rows)


    def named(self, names: dict[str, dict[str, Any]]) -> list[ProcessSums]:
        """One row per command name and process, most bytes first. names: `threads` of the metadata of a trace.
        A thread that is missing there has a row of its own."""
        processes: dict[tuple[str, int | None], int] = {}
        tids, of_tids = self._by_tid()
        index = np.fromiter((processes.setdefault(_process_of(tid, names), len(processes)) for tid in tids), np.int64,
                            len(tids))
        sums = _added(of_tids, index, len(processes))
        threads = np.bincount(index, minlength=len(processes)).tolist()
        rows = [{"name": comm, "pid": pid, "threads": threads[at],
                 **dict(zip(_SUM_NAMES, sums[at].tolist(), strict=True))} for (comm, pid), at in processes.items()]
        return sorted(rows, key=lambda row: (-row["read_bytes"] - row["write_bytes"], row["name"]))


def _process_of(tid: int, names: dict[str, dict[str, Any]]) -> tuple[str, int | None]:
    """(command name, process) of a thread."""
    thread = names.get(str(tid), {})
    return thread.get("comm") or ("unknown" if tid < 0 else f"thread {tid}"), thread.get("pid")


def _added(rows: np.ndarray, index: np.ndarray, count: int) -> np.ndarray:
    """The sums of the rows with each index below `count`."""
    sums = np.zeros((count, rows.shape[1]), np.int64)
    np.add.at(sums, index, rows)
    return sums


def _at(threads: Threads, keys: np.ndarray) -> np.ndarray:
    """The rows for these keys; sums of 0 and no first offset for one without a row."""
    rows = np.zeros((len(keys), len(DATA_CLASSES), _COLUMNS), np.int64)
    rows[:, :, _FIRST["first_offset"]] = -1
    rows[np.searchsorted(keys, threads.keys)] = threads.rows
    return rows
