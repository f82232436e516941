"""How far a preparation has come, noted so that the same command goes on there: after Ctrl-C, a kill, a reboot.

One small file a drive, beside the drive's state. What it promises is done: rows complete in any order, so it names the
row up to which all have. And what a drive has completed it may still lose with its power, from a volatile cache. So
there is a second mark, further back by more than such a cache holds, which counts after a reboot.
"""

import hashlib
import json
import time
from collections import deque
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime

import numpy as np

from blkreel.traces.schema import OPS

from . import drive_state
from .states import State
from .target import Target

# Caches of drives for data are megabytes; those of large hard disks and of controllers a few GiB at most (D). Noting a
# mark only after a flush would do without, but flushes are no part of a state, and drives answer them differently.
_VOLATILE_MOST_BYTES = 4 << 30
_VOLATILE_SHARE = 64  # of a small device: a part in so many
_MARKS_KEPT = 64
_NOTE_EVERY_S = 1.0
# Or a part in so many of the drive, where that takes less than a second: as with any small device.
_NOTE_SHARE, _NOTE_LEAST_S = 64, 0.02


class LowWater:
    """Up to which row everything is done, of rows that complete in any order. done_bytes: of the rows below it."""

    def __init__(self, rows: int = 0, done_bytes: int = 0):
        self.rows, self.done_bytes = rows, done_bytes
        self._row, self._length = np.empty(0, np.int64), np.empty(0, np.int64)

    def add(self, row: np.ndarray, length_bytes: np.ndarray) -> None:
        """Some that are done; each comes once."""
        row, length = np.concatenate([self._row, row]), np.concatenate([self._length, length_bytes])
        order = np.argsort(row, kind="stable")
        row, length = row[order], length[order]
        # Sorted and unique, they agree with a count from the mark up to the first gap, and never after it.
        below = int((row == np.arange(self.rows, self.rows + len(row))).sum())
        self.rows += below
        self.done_bytes += int(length[:below].sum())
        self._row, self._length = row[below:], length[below:]


@dataclass
class Record:
    """What the file holds. step and round count from 0; below `rows` of that round everything is done.

    key: of all that decides what is issued. capacity_bytes: of the drive. safe_rows, safe_bytes: the mark that holds
    after a reboot. rates: of the rounds of the step so far, bytes/s; rounds_done: how many there were, once it has
    ended. round_bytes, round_ns: of the current round, over its interruptions. engine_steps: of each run of the engine,
    which have a seed each. erase_began: by a command that goes on by itself. noted_at: seconds since 1970. percent: of
    all bytes of the state. power: see drive_state.power_of(). before: the state that it builds upon. counted: by the
    kernel when the engine had ended; None while it is at work, as it does not end with whoever is killed.
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
    before: dict | None = None
    counted: dict | None = None


def key_of(state: State, **more) -> str:
    """Whatever differs in it is another preparation."""
    words = json.dumps({**state.identity, **more}, sort_keys=True)
    return hashlib.sha256(words.encode()).hexdigest()[:24]


def load(target: Target) -> Record | None:
    """What was begun on the drive and did not end; None for nothing, or for a file that cannot be read."""
    try:
        stored = json.loads(drive_state.progress_file(target).read_text())["preparing"]
        return Record(**{one.name: stored[one.name] for one in fields(Record)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget(target: Target) -> None:
    drive_state.progress_file(target).unlink(missing_ok=True)


def volatile_bytes(capacity_bytes: int) -> int:
    """More than a drive can have completed and yet lose with its power."""
    return min(_VOLATILE_MOST_BYTES, capacity_bytes // _VOLATILE_SHARE)


class Noted:
    """A record that is kept in its file: about once a second while rows are done, and at each end.

    More often on a small device.
    """

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
        """The engine starts anew, with a clock of its own. Which time it is, from 0."""
        self._first_ns = None
        self._base_ns = self.record.round_ns
        self.record.counted = None
        self.record.engine_steps.append(self.record.step)
        self.save()
        return len(self.record.engine_steps) - 1

    def rewind_after_power(self) -> bool:
        """Go back to the mark that holds even if the drive lost its power, where it may have since."""
        record = self.record
        if record.power == drive_state.power_of(self._target):
            return False
        record.rows, record.done_bytes = record.safe_rows, record.safe_bytes
        self._restart()
        return True

    def take(self, rows: dict[str, np.ndarray]) -> None:
        """Rows that are done."""
        record, length_bytes = self.record, rows["length_bytes"]
        self._low.add(rows["source_row"], length_bytes)
        if self._low.done_bytes - self._marks[-1][1] > self._volatile_bytes // _MARKS_KEPT:
            self._marks.append((self._low.rows, self._low.done_bytes))
        if self._first_ns is None:
            self._first_ns = self._last_ns = int(rows["submit_ns"].min())
        self._last_ns = max(self._last_ns, int(rows["complete_ns"].max()))
        record.round_bytes += int(length_bytes.sum())
        record.round_ns = self._base_ns + self._last_ns - self._first_ns
        record.written_bytes += int(length_bytes[rows["op"] == OPS["write"]].sum())
        passed_s = time.monotonic() - self._saved
        much = self._low.done_bytes - record.done_bytes >= self._target.size_bytes // _NOTE_SHARE
        if passed_s >= _NOTE_EVERY_S or (much and passed_s >= _NOTE_LEAST_S):
            self.save()

    def save(self) -> None:
        """Raises BlkreelError where the state directory cannot be written."""
        record = self.record
        record.rows, record.done_bytes = self._low.rows, self._low.done_bytes
        while len(self._marks) > 1 and self._marks[1][1] <= record.done_bytes - self._volatile_bytes:
            self._marks.popleft()
        record.safe_rows, record.safe_bytes = self._marks[0]
        record.percent = percent(self._state, record)
        record.power, record.noted_at = drive_state.power_of(self._target), time.time()
        drive_state.write_beside(self._target, drive_state.progress_file(self._target), {"preparing": asdict(record)})
        self._saved = time.monotonic()

    def end_engine(self) -> None:
        """It has ended, in order or by an error: nothing is written any more."""
        self.record.counted = drive_state.count_now(self._target)
        self.save()

    @property
    def round_bytes_per_s(self) -> float:
        """Of the current round, without its interruptions."""
        return self.record.round_bytes * 1e9 / max(self.record.round_ns, 1)

    def next_round(self) -> None:
        self._next(self.record.step, self.record.round + 1)

    def next_step(self) -> None:
        """All before it is on the drive, flushed."""
        self.record.rates = []
        self._next(self.record.step + 1, 0)

    def _next(self, step, round_):
        record = self.record
        record.step, record.round, record.round_bytes, record.round_ns = step, round_, 0, 0
        record.rows = record.done_bytes = record.safe_rows = record.safe_bytes = 0
        self._restart()
        self.save()

    def _restart(self):
        self._low = LowWater(self.record.rows, self.record.done_bytes)
        self._marks = deque([(self.record.rows, self.record.done_bytes)])


def percent(state: State, record: Record) -> float:
    """Of the bytes of a state, without those of rounds that may not be needed; of the erase only where that is all."""
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
    """The drive's state as of now: `client, prepared 2 h ago, 3.1 GB written since`, or how far one has come."""
    state = drive_state.load(target)
    begun = None if state.name else load(target)
    if begun:
        return f"unknown: preparing {describe(begun)}"
    return drive_state.words(state, datetime.now(UTC), drive_state.written_by_others(target, state))
