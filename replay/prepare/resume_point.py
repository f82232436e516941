"""Progress of a preparation, saved so that the same command resumes it after Ctrl-C, a kill or a reboot.

One small file per drive, beside its state. Rows complete in any order, so the file holds the row below which all are
done. A drive may lose completed writes in its volatile cache with its power. So a second mark, further back by more
than such a cache holds, counts after a reboot.
"""

import hashlib
import json
import time
from collections import deque
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, TypedDict

import numpy as np

from blkreel.common.files.safe_files import unlink
from blkreel.common.files.typed_document import field_mismatch, read_json
from blkreel.replay.drive import late_writes
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.evidence import power_of
from blkreel.replay.drive.target import Target
from blkreel.traces.format.schema import OPS

from .states import State

# Volatile caches of drives are megabytes; those of large hard disks and of controllers a few GiB at most (D). Flushes
# would make this unnecessary, but they are no part of a state, and drives handle them differently.
_VOLATILE_MOST_BYTES = 4 << 30
_VOLATILE_SHARE = 64  # at most 1/64 of a small device
_MAX_MARKS = 64
_SAVE_EVERY_S = 1.0
# Small devices take less than a second for 1/64 of their size, and save after that.
_SAVE_SHARE, _SAVE_LEAST_S = 64, 0.02


class LowWater:
    """The row below which all are done, of rows that complete in any order. done_bytes: of the rows below it."""

    def __init__(self, rows: int = 0, done_bytes: int = 0):
        self.rows, self.done_bytes = rows, done_bytes
        self._row, self._length = np.empty(0, np.int64), np.empty(0, np.int64)

    def add(self, row: np.ndarray, length_bytes: np.ndarray) -> None:
        """Completed rows; each is given once."""
        row, length = np.concatenate([self._row, row]), np.concatenate([self._length, length_bytes])
        order = np.argsort(row, kind="stable")
        row, length = row[order], length[order]
        # Sorted and unique rows equal a count from the mark up to the first gap, and never after it.
        below = int((row == np.arange(self.rows, self.rows + len(row))).sum())
        self.rows += below
        self.done_bytes += int(length[:below].sum())
        self._row, self._length = row[below:], length[below:]


@dataclass
class Record:
    """The content of the file. step and round count from 0; all rows of that round below `rows` are done.

    key: hash of everything that determines the I/O. capacity_bytes: of the drive. safe_rows, safe_bytes: the mark that
    counts after a reboot. rates: of the finished rounds of the step, bytes/s; rounds_done: their number, after the
    step. round_bytes, round_ns: of the current round, without interruptions. engine_steps: the step of each engine
    run, which have a seed each. erase_began: whether a sanitize was started, which continues by itself. noted_at:
    seconds since 1970. percent: of all bytes of the state. power: see evidence.power_of(). before: the state that it
    builds on. counted: kernel's count after the last engine run; None while one runs.
    """

    key: str
    name: str
    capacity_bytes: int
    step: int = 0
    round: int = 0
    rows: int = 0
    done_bytes: int = 0
    safe_rows: int = 0
    safe_bytes: int = 0
    rates: list[float] = field(default_factory=list)
    rounds_done: int = 0
    round_bytes: int = 0
    round_ns: int = 0
    engine_steps: list[int] = field(default_factory=list)
    written_bytes: int = 0
    erase_began: bool = False
    power: str = ""
    noted_at: float = 0.0
    percent: float = 0.0
    notes: list[str] = field(default_factory=list)
    before: dict[str, Any] | None = None
    counted: drive_state.KernelCount | None = None


def key_of(state: State, **options: Any) -> str:
    """Two preparations with different keys cannot resume each other."""
    text = json.dumps({**state.identity, **options}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class _Stored(TypedDict):
    preparing: dict[str, Any]


def load(target: Target) -> Record | None:
    """The unfinished preparation of the drive; None without one, or if its file cannot be read."""
    try:
        stored = read_json(drive_state.progress_file(target), _Stored)["preparing"]
        if field_mismatch(stored, Record):
            return None
        return Record(**{field.name: stored[field.name] for field in fields(Record)})
    except (OSError, ValueError, KeyError):
        return None


def forget(target: Target) -> None:
    unlink(drive_state.progress_file(target))


def volatile_bytes(capacity_bytes: int) -> int:
    """More than a drive can lose of its completed writes with its power."""
    return min(_VOLATILE_MOST_BYTES, capacity_bytes // _VOLATILE_SHARE)


class SavedRecord:
    """A record with its file, which is saved about once a second, more often on a small device, and at each end."""

    def __init__(self, target: Target, record: Record, state: State):
        self.record = record
        self._target, self._state = target, state
        self._volatile_bytes = volatile_bytes(target.size_bytes)
        self._saved = 0.0
        self._low = LowWater(record.rows, record.done_bytes)
        self._marks = deque([(record.safe_rows, record.safe_bytes), (record.rows, record.done_bytes)])
        self._first_ns: int | None = None
        self._base_ns = self._last_ns = 0

    def begin_engine(self) -> int:
        """Call it before each engine run, which has its own clock. Returns the number of the run, from 0."""
        self._first_ns = None
        self._base_ns = self.record.round_ns
        self.record.counted = None
        self.record.engine_steps.append(self.record.step)
        self.save()
        return len(self.record.engine_steps) - 1

    def rewind_after_power(self) -> bool:
        """Go back to the safe mark if the drive may have lost its power since. Returns whether."""
        record = self.record
        if record.power == power_of(self._target):
            return False
        record.rows, record.done_bytes = record.safe_rows, record.safe_bytes
        self._restart()
        return True

    def take(self, rows: dict[str, np.ndarray]) -> None:
        """Completed rows."""
        record, length_bytes = self.record, rows["length_bytes"]
        self._low.add(rows["source_row"], length_bytes)
        if self._low.done_bytes - self._marks[-1][1] > self._volatile_bytes // _MAX_MARKS:
            self._marks.append((self._low.rows, self._low.done_bytes))
        if self._first_ns is None:
            self._first_ns = self._last_ns = int(rows["submit_ns"].min())
        self._last_ns = max(self._last_ns, int(rows["complete_ns"].max()))
        record.round_bytes += int(length_bytes.sum())
        record.round_ns = self._base_ns + self._last_ns - self._first_ns
        record.written_bytes += int(length_bytes[rows["op"] == OPS["write"]].sum())
        passed_s = time.monotonic() - self._saved
        is_share_done = self._low.done_bytes - record.done_bytes >= self._target.size_bytes // _SAVE_SHARE
        if passed_s >= _SAVE_EVERY_S or (is_share_done and passed_s >= _SAVE_LEAST_S):
            self.save()

    def save(self) -> None:
        """Raises BlkreelError if the state directory cannot be written."""
        record = self.record
        record.rows, record.done_bytes = self._low.rows, self._low.done_bytes
        while len(self._marks) > 1 and self._marks[1][1] <= record.done_bytes - self._volatile_bytes:
            self._marks.popleft()
        record.safe_rows, record.safe_bytes = self._marks[0]
        record.percent = percent(self._state, record)
        record.power, record.noted_at = power_of(self._target), time.time()
        drive_state.write_beside(self._target, drive_state.progress_file(self._target), {"preparing": asdict(record)})
        self._saved = time.monotonic()

    def end_engine(self) -> None:
        """Call it after each engine run, also after an error."""
        self.record.counted = drive_state.count_now(self._target)
        self.save()

    @property
    def round_bytes_per_s(self) -> float:
        """Of the current round, without interruptions."""
        return self.record.round_bytes * 1e9 / max(self.record.round_ns, 1)

    def next_round(self) -> None:
        self._next(self.record.step, self.record.round + 1)

    def next_step(self) -> None:
        """Call it after all previous steps are flushed to the drive."""
        self.record.rates = []
        self._next(self.record.step + 1, 0)

    def _next(self, step: int, round_: int) -> None:
        record = self.record
        record.step, record.round, record.round_bytes, record.round_ns = step, round_, 0, 0
        record.rows = record.done_bytes = record.safe_rows = record.safe_bytes = 0
        self._restart()
        self.save()

    def _restart(self) -> None:
        self._low = LowWater(self.record.rows, self.record.done_bytes)
        self._marks = deque([(self.record.rows, self.record.done_bytes)])


def percent(state: State, record: Record) -> float:
    """Share of the bytes of a state, without optional rounds; the erase counts only in a state without writes."""
    steps = [0 if step.erases else step.total_bytes for step in state.steps]
    if not any(steps):
        steps = [step.total_bytes for step in state.steps]
    done = sum(steps[:record.step])
    if record.step < len(steps) and steps[record.step]:
        done += min(record.done_bytes, steps[record.step]) if not record.round else steps[record.step]
    return 100.0 * done / max(1, sum(steps))


def describe(record: Record) -> str:
    """`client at 62 %, interrupted 3 min ago`."""
    return f"{record.name} at {record.percent:.0f} %, interrupted {drive_state.ago(time.time() - record.noted_at)}"


def state_words(target: Target) -> str:
    """`client, prepared 2 h ago, 3.1 GB written since`, or an unfinished preparation, or writes in flight."""
    if writer := late_writes.late_writer(target):
        return late_writes.words(writer)
    state = drive_state.load(target)
    unfinished = None if state.name else load(target)
    if unfinished:
        return f"unknown: preparing {describe(unfinished)}"
    return drive_state.words(state, datetime.now(UTC), drive_state.written_by_others(target, state))
