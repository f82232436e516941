"""What comes back from the engine during a replay: into the run's file, and added up as it passes."""

import errno
import os
from collections import Counter, deque

import numpy as np

from blkreel.traces.schema import FLAGS, OP_NAMES, OPS
from blkreel.traces.spool import Spool

from .lateness import Lateness

_PLANNED = ("source_row", "offset_bytes", "length_bytes", "op", "target")
_KEPT = ("due_ns", "submit_ns", "offset_bytes", "length_bytes", "op", "flags", "cpu", "status", "stream", "burst",
         "source_row")


class Fingerprint:
    """Tells whether two sets of I/Os are the same, whatever their order: the sum of a hash of each."""

    def __init__(self):
        self.ios = 0
        self.sum = 0

    def add(self, columns: dict[str, np.ndarray]) -> None:
        value = np.zeros(len(columns["op"]), np.uint64)
        for name in _PLANNED:
            # Odd constants and a shift: any changed column changes the product in all its high bits.
            # A plan for one drive does not name it.
            column = columns[name].astype(np.int64).view(np.uint64) if name in columns else np.uint64(0)
            value = (value ^ column) * np.uint64(0x9E3779B97F4A7C15)
            value ^= value >> np.uint64(29)
        self.ios += len(value)
        self.sum = (self.sum + int(value.sum(dtype=np.uint64))) % 2**64

    def watch(self, batches):
        """The batches, added up as they pass."""
        for batch in batches:
            self.add(batch)
            yield batch

    def copy(self) -> "Fingerprint":
        return self + Fingerprint()

    def __add__(self, other) -> "Fingerprint":
        both = Fingerprint()
        both.ios, both.sum = self.ios + other.ios, (self.sum + other.sum) % 2**64
        return both

    def __eq__(self, other) -> bool:
        return isinstance(other, Fingerprint) and (self.ios, self.sum) == (other.ios, other.sum)


class OpenFingerprint:
    """Of a plan that may be cut off: knows the sum of its first rows, wherever the engine stopped taking them.

    The last rows that were fed are kept, as many as the engine reads ahead at most.
    """

    def __init__(self, kept_rows: int):
        self._kept_rows = kept_rows
        self._before = Fingerprint()  # of what is no longer kept
        self._kept: deque[dict] = deque()
        self._rows = 0

    def watch(self, batches):
        """The batches, remembered as they pass."""
        for batch in batches:
            self._kept.append({name: batch[name] for name in _PLANNED if name in batch})
            self._rows += len(batch["op"])
            while len(self._kept) > 1 and self._rows - len(self._kept[0]["op"]) >= self._kept_rows:
                gone = self._kept.popleft()
                self._rows -= len(gone["op"])
                self._before.add(gone)
            yield batch

    def of_first(self, rows: int) -> Fingerprint:
        """Of so many rows from the start; of all there were, where that is less."""
        wanted, found = rows - self._before.ios, self._before.copy()
        for batch in self._kept:
            if wanted <= 0:
                break
            part = {name: column[:wanted] for name, column in batch.items()}
            found.add(part)
            wanted -= len(part["op"])
        return found


class Moved:
    """I/Os and bytes by the name of the operation."""

    def __init__(self):
        self.ios: dict[str, int] = dict.fromkeys(OPS, 0)
        self.bytes: dict[str, int] = dict.fromkeys(OPS, 0)

    def add(self, op, length_bytes) -> None:
        for code, name in OP_NAMES.items():
            here = op == code
            self.ios[name] += int(here.sum())
            self.bytes[name] += int(length_bytes[here].sum())

    @property
    def changed_bytes(self) -> int:
        return self.bytes["write"] + self.bytes["write_zeroes"]


class RunRecords:
    """Takes the engine's rows. What it adds up is read by the account of the run."""

    def __init__(self, spool: Spool):
        self.issued = Fingerprint()
        self.completed_ops = 0
        self.error_ops = 0
        self.first_error: str | None = None
        self.errors: Counter[str] = Counter()  # `write EIO`: how many
        self.first_submit_ns: int | None = None
        self.last_submit_ns = 0
        self.last_complete_ns = 0
        self._own_ns: tuple[int, int] | None = None
        self.lateness = Lateness()
        self.of_target: dict[int, Moved] = {}
        self._spool = spool

    def take(self, rows: dict[str, np.ndarray]) -> None:
        """Rows in the order of completion. Raises BlkreelError when the disk of the output is full."""
        submit_ns, complete_ns = rows["submit_ns"], rows["complete_ns"]
        if not len(submit_ns):
            return
        finished = complete_ns >= submit_ns
        latency_ns = np.where(finished, complete_ns - submit_ns, -1)
        # First: what is counted is in the file, whatever happens. And at once: a kill loses what is not there yet.
        kept = {name: rows[name] for name in _KEPT}
        self._spool.write({**kept, "latency_ns": latency_ns, "device": rows["target"]})
        self.issued.add(rows)
        self.completed_ops += int(finished.sum())
        first_ns = int(submit_ns.min())
        self.first_submit_ns = first_ns if self.first_submit_ns is None else min(self.first_submit_ns, first_ns)
        self.last_submit_ns = max(self.last_submit_ns, int(submit_ns.max()))
        self.last_complete_ns = max(self.last_complete_ns, int(complete_ns.max()))
        self.lateness.add(rows["due_ns"], submit_ns, rows["flags"])
        self._count(rows)
        self._take_own(rows)

    @property
    def wall_ns(self) -> int:
        """From the first submit to the last completion."""
        return self.last_complete_ns - self.first_submit_ns if self.first_submit_ns is not None else 0

    @property
    def own_wall_ns(self) -> int | None:
        """The same of what was captured, without what other programs did meanwhile; None where nothing is marked so."""
        return self._own_ns[1] - self._own_ns[0] if self._own_ns else None

    def _take_own(self, rows):
        own = (rows["flags"] & FLAGS["own"]) != 0
        if own.any():
            first_ns, last_ns = int(rows["submit_ns"][own].min()), int(rows["complete_ns"][own].max())
            before = self._own_ns or (first_ns, last_ns)
            self._own_ns = min(before[0], first_ns), max(before[1], last_ns)

    def _count(self, rows):
        wrong = np.flatnonzero(rows["status"] != 0)
        if len(wrong):
            self.error_ops += len(wrong)
            self.errors.update(error_kind(op, status) for op, status in
                               zip(rows["op"][wrong].tolist(), rows["status"][wrong].tolist(), strict=True))
            if self.first_error is None:
                self.first_error = error_text(rows, int(wrong[0]))
        for index in np.unique(rows["target"]).tolist():
            here = rows["target"] == index
            self.moved(index).add(rows["op"][here], rows["length_bytes"][here])

    def moved(self, target: int) -> Moved:
        """What went to one of the run's drives."""
        return self.of_target.setdefault(target, Moved())

    @property
    def bytes(self) -> dict[str, int]:
        return {name: sum(one.bytes[name] for one in self.of_target.values()) for name in OPS}


def error_kind(op: int, status: int) -> str:
    """`write EIO`."""
    return f"{OP_NAMES[op]} {errno.errorcode.get(-status, -status)}"


def error_text(rows: dict[str, np.ndarray], index: int) -> str:
    """`write of 4,096 bytes at 1,048,576: Input/output error (EIO)`."""
    code = -int(rows["status"][index])
    return (f"{OP_NAMES[int(rows['op'][index])]} of {int(rows['length_bytes'][index]):,} bytes at "
            f"{int(rows['offset_bytes'][index]):,}: {os.strerror(code)} ({errno.errorcode.get(code, code)})")
