"""Who did how much I/O: sums per thread, and which of it went on where the thread's I/O before had ended."""

from dataclasses import dataclass, field

import numpy as np

DATA_CLASSES = ("read", "write")
# struct stream of native/accumulator.h: sums, and behind them where the first in this part began and the last ended.
SUMS = ("ops", "bytes", "service_ns", "sequential_ops", "sequential_bytes")
_ENDS = ("first_offset", "first_bytes", "first_device", "end_offset", "end_device")
_COLUMNS = len(SUMS) + len(_ENDS)
_FIRST = {name: len(SUMS) + index for index, name in enumerate(_ENDS)}


@dataclass
class ThreadSums:
    """An I/O is sequential where it begins at the byte at which the one before of its class, by the same thread on the
    same drive, ended."""

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
class Threads:
    """tids: ascending. rows: (threads, 2, 10), reads and writes of each in the columns of native's struct stream."""

    tids: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    rows: np.ndarray = field(default_factory=lambda: np.empty((0, len(DATA_CLASSES), _COLUMNS), np.int64))

    @classmethod
    def of_native(cls, numbers: np.ndarray) -> "Threads":
        """From PART_THREADS of native/metrics.h."""
        table = numbers.reshape(-1, 1 + len(DATA_CLASSES) * _COLUMNS)
        table = table[np.argsort(table[:, 0], kind="stable")]
        return cls(table[:, 0].copy(), table[:, 1:].reshape(-1, len(DATA_CLASSES), _COLUMNS).copy())

    @property
    def sums(self) -> dict[int, ThreadSums]:
        """By thread id."""
        names = [f"{kind}_{name}" for kind in DATA_CLASSES for name in SUMS]
        return {tid: ThreadSums(**dict(zip(names, values, strict=True))) for tid, values in zip(
            self.tids.tolist(), self.rows[:, :, :len(SUMS)].reshape(-1, len(names)).tolist(), strict=True)}

    def sequential(self, kind: int) -> tuple[int, int]:
        """I/Os and bytes of a class of DATA_CLASSES that went on where the one before had ended."""
        ops, moved = (int(self.rows[:, kind, SUMS.index(f"sequential_{name}")].sum()) for name in ("ops", "bytes"))
        return ops, moved

    def join(self, later: "Threads") -> "Threads":
        """Of two parts of one run that follow each other."""
        tids = np.union1d(self.tids, later.tids)
        mine, theirs = (_at(each, tids) for each in (self, later))
        rows = mine.copy()
        rows[:, :, :len(SUMS)] += theirs[:, :, :len(SUMS)]
        both = (mine[..., _FIRST["first_offset"]] >= 0) & (theirs[..., _FIRST["first_offset"]] >= 0)
        goes_on = (both & (theirs[..., _FIRST["first_offset"]] == mine[..., _FIRST["end_offset"]])
                   & (theirs[..., _FIRST["first_device"]] == mine[..., _FIRST["end_device"]]))
        rows[..., SUMS.index("sequential_ops")] += goes_on
        rows[..., SUMS.index("sequential_bytes")] += goes_on * theirs[..., _FIRST["first_bytes"]]
        fresh = mine[..., _FIRST["first_offset"]] < 0
        first, end = slice(len(SUMS), len(SUMS) + 3), slice(len(SUMS) + 3, None)
        rows[fresh, first] = theirs[fresh, first]
        ended = theirs[..., _FIRST["first_offset"]] >= 0
        rows[ended, end] = theirs[ended, end]
        return Threads(tids, rows)

    def __eq__(self, other) -> bool:
        return (isinstance(other, Threads) and np.array_equal(self.tids, other.tids)
                and np.array_equal(self.rows, other.rows))

    __hash__ = None

    def named(self, names: dict[str, dict]) -> list[dict]:
        """One row per command name and process, largest first: `names` is the `threads` of a trace's metadata.
        A download client's twenty workers are one line; thread ids that the metadata lacks stay apart."""
        rows = {}
        for tid, sums in self.sums.items():
            known = names.get(str(tid), {})
            comm = known.get("comm") or ("unknown" if tid < 0 else f"thread {tid}")
            row = rows.setdefault((comm, known.get("pid")), {
                "name": comm, "pid": known.get("pid"), "threads": 0, **vars(ThreadSums())})
            row["threads"] += 1
            for key, value in vars(sums).items():
                row[key] += value
        return sorted(rows.values(), key=lambda row: (-row["read_bytes"] - row["write_bytes"], row["name"]))


def _at(threads, tids):
    """The rows for those tids; of a thread that had none, nothing and no beginning."""
    rows = np.zeros((len(tids), len(DATA_CLASSES), _COLUMNS), np.int64)
    rows[:, :, _FIRST["first_offset"]] = -1
    rows[np.searchsorted(tids, threads.tids)] = threads.rows
    return rows
