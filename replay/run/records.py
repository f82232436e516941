"""Records of the engine during a replay: written to the run's file and summed up."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from blkreel.replay.background.account import Backgrounds
from blkreel.replay.engine.engine import Batch
from blkreel.replay.engine.spans import ReadTimes, RunSpan
from blkreel.replay.engine.untimed_io import error_kind, error_text
from blkreel.replay.fidelity.lateness import Lateness
from blkreel.replay.plan.batch import issued_rows
from blkreel.replay.simulated.fitted import FittedReads
from blkreel.traces.format.schema import FLAGS, OP_NAMES, OPS, WRITES
from blkreel.traces.format.trace_survey import add_write_flags
from blkreel.traces.spool.spool import Spool

_PLANNED = ("source_row", "offset_bytes", "length_bytes", "op", "target")
_RECORDED = ("due_ns", "submit_ns", "offset_bytes", "length_bytes", "op", "flags", "cpu", "status", "stream", "burst",
             "source_row", "tid")


class IoChecksum:
    """Sum of a hash of each I/O, to compare two sets of I/Os in any order."""

    def __init__(self, ios: int = 0, sum: int = 0):
        self.ios = ios
        self.sum = sum

    def add(self, columns: Batch) -> None:
        columns = issued_rows(columns)
        value = np.zeros(len(columns["op"]), np.uint64)
        for name in _PLANNED:
            # Odd constants and a shift: any changed column changes the product in all its high bits.
            # A plan for one drive has no column `target`.
            column = columns[name].astype(np.int64).view(np.uint64) if name in columns else np.uint64(0)
            value = (value ^ column) * np.uint64(0x9E3779B97F4A7C15)
            value ^= value >> np.uint64(29)
        self.ios += len(value)
        self.sum = (self.sum + int(value.sum(dtype=np.uint64))) % 2**64

    def sum_up(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Give the batches unchanged, and add them."""
        for batch in batches:
            self.add(batch)
            yield batch

    def of_first(self, rows: int) -> "IoChecksum":
        """Checksum of all rows: a plan that is not open is issued completely."""
        return self

    def __add__(self, other: "IoChecksum") -> "IoChecksum":
        return IoChecksum(self.ios + other.ios, (self.sum + other.sum) % 2**64)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IoChecksum) and (self.ios, self.sum) == (other.ios, other.sum)


class PrefixChecksum(IoChecksum):
    """Checksum of the first rows of a plan that may be cut off at any row.

    It holds the last `rows_ahead` rows, as many as the engine reads ahead. ios, sum: of the rows before those.
    """

    def __init__(self, rows_ahead: int):
        super().__init__()
        self._rows_ahead = rows_ahead
        self._recent: deque[Batch] = deque()
        self._recent_rows = 0

    def sum_up(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self._recent.append({name: batch[name] for name in (*_PLANNED, "flags") if name in batch})
            self._recent_rows += len(batch["op"])
            while len(self._recent) > 1 and self._recent_rows - len(self._recent[0]["op"]) >= self._rows_ahead:
                oldest = self._recent.popleft()
                self._recent_rows -= len(oldest["op"])
                self.add(oldest)
            yield batch

    def of_first(self, rows: int) -> IoChecksum:
        """Checksum of the first `rows` rows, of all rows if there are fewer."""
        missing, checksum = rows - self.ios, IoChecksum(self.ios, self.sum)
        for batch in self._recent:
            if missing <= 0:
                break
            part = {name: column[:missing] for name, column in batch.items()}
            checksum.add(part)
            missing -= len(part["op"])
        return checksum


class IoTotals:
    """I/Os and bytes by the name of the operation."""

    def __init__(self) -> None:
        self.ios: dict[str, int] = dict.fromkeys(OPS, 0)
        self.bytes: dict[str, int] = dict.fromkeys(OPS, 0)

    def add(self, op: np.ndarray, length_bytes: np.ndarray) -> None:
        for code, name in OP_NAMES.items():
            is_op = op == code
            self.ios[name] += int(is_op.sum())
            self.bytes[name] += int(length_bytes[is_op].sum())

    @property
    def changed_bytes(self) -> int:
        return sum(self.bytes[name] for name in (*WRITES, "write_zeroes"))


def foreground_of(rows: Batch) -> tuple[Batch, Batch | None]:
    """The rows of the foreground and those of backgrounds; None without any of these."""
    is_background = (rows["flags"] & FLAGS["role_background"]) != 0
    if not is_background.any():
        return rows, None
    return ({name: column[~is_background] for name, column in rows.items()},
            {name: column[is_background] for name, column in rows.items()})


class RunRecords:
    """Writes the engine's records to the spool and sums them up for the account of the run.

    spool: None to count rows that are written already. backgrounds: their sums. Of all rows: issued, unfinished_ops,
    errors, and totals by target; the others are of the foreground. fitted: only on a drive that was fitted.
    """

    def __init__(self, spool: Spool | None, backgrounds: Backgrounds | None = None, fitted: FittedReads | None = None,
                 finds_late_end: bool = False):
        self.issued = IoChecksum()
        self.issued_ops = self.completed_ops = self.unfinished_ops = 0
        self.backgrounds = backgrounds
        self.fitted = fitted
        self.error_ops = 0
        self.first_error: str | None = None
        self.errors: Counter[str] = Counter()  # by error_kind()
        self.span = RunSpan(finds_late_end)
        self.reads = ReadTimes()
        self.write_flags: dict[str, int] = {}  # bytes of the writes that the drives got with each of WRITE_FLAGS
        self.last_submit_ns = 0
        self.lateness = Lateness()
        self._by_target: dict[int, IoTotals] = {}
        self._spool = spool

    def add(self, rows: Batch) -> None:
        """Rows in the order of completion. Raises BlkreelError if the disk of the output is full."""
        submit_ns, complete_ns = rows["submit_ns"], rows["complete_ns"]
        if not len(submit_ns):
            return
        if self._spool:
            latency_ns = np.where(complete_ns >= submit_ns, complete_ns - submit_ns, -1)
            # Write before counting, so that the sums never hold rows that the file does not, and do not buffer: a kill
            # loses what is not written.
            recorded = {name: rows[name] for name in (*_RECORDED, "idle_removed_ns") if name in self._spool.columns}
            self._spool.write({**recorded, "latency_ns": latency_ns, "device": rows["target"]})
        self.issued.add(rows)
        self.unfinished_ops += int((complete_ns < submit_ns).sum())
        self.last_submit_ns = max(self.last_submit_ns, int(submit_ns.max()))
        self._add_foreground(rows)
        for target in np.unique(rows["target"]).tolist():
            is_target = rows["target"] == target
            self.of_target(target).add(rows["op"][is_target], rows["length_bytes"][is_target])
        self._count_errors(rows)

    def _add_foreground(self, rows: Batch) -> None:
        all_rows = rows
        rows, background_rows = foreground_of(rows)
        # A trace may hold rows of a background itself (merge --as-background); then these are of the plan, too.
        planned = all_rows if self.backgrounds is None else rows
        self.issued_ops += len(planned["op"])
        add_write_flags(self.write_flags, planned["flags"], planned["length_bytes"])
        self.completed_ops += int((planned["complete_ns"] >= planned["submit_ns"]).sum())
        self.span.add(rows)
        self.reads.add(rows)
        self.lateness.add(rows["due_ns"], rows["submit_ns"], rows["flags"])
        if self.backgrounds is not None:
            self.backgrounds.add(background_rows, rows)
        if self.fitted is not None:
            self.fitted.add(all_rows, rows)

    def _count_errors(self, rows: Batch) -> None:
        failed = np.flatnonzero(rows["status"] != 0)
        if not len(failed):
            return
        self.error_ops += len(failed)
        self.errors.update(error_kind(op, status) for op, status in
                           zip(rows["op"][failed].tolist(), rows["status"][failed].tolist(), strict=True))
        if self.first_error is None:
            self.first_error = error_text(rows, int(failed[0]))

    def account(self) -> dict[str, Any]:
        """The keys of the account of a run that follow from its rows alone."""
        return {
            "issued_ops": self.issued_ops,
            "completed_ops": self.completed_ops,
            "moved_bytes": self.bytes["read"] + sum(self.bytes[name] for name in WRITES),
            "written_bytes": sum(self.bytes[name] for name in WRITES),
            "error_ops": self.error_ops,
            "errors": dict(self.errors),
            "first_error": self.first_error,
            "compares": self.ios["compare"],
            "compared_bytes": self.bytes["compare"],
            "wall_ns": self.span.wall_ns,
            "own_wall_ns": self.span.workload_wall_ns,
            "reads": self.reads.account(),
            "drift_ns": self.lateness.drift_ns(),
            "lateness": self.lateness.account(),
        }

    def of_target(self, target: int) -> IoTotals:
        """Totals of one of the run's drives."""
        return self._by_target.setdefault(target, IoTotals())

    @property
    def ios(self) -> dict[str, int]:
        return {name: sum(totals.ios[name] for totals in self._by_target.values()) for name in OPS}

    @property
    def bytes(self) -> dict[str, int]:
        return {name: sum(totals.bytes[name] for totals in self._by_target.values()) for name in OPS}
