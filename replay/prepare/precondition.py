"""Preconditioning: puts a drive into a state, saves the state, and resumes what was interrupted."""

import errno
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.progress import Progress
from blkreel.common.units import format_bytes, format_ns
from blkreel.replay.drive import erase
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.claim import held
from blkreel.replay.drive.state import DriveState
from blkreel.replay.drive.target import Target
from blkreel.replay.engine.engine import Engine, Payload, run_engine
from blkreel.replay.engine.untimed_io import Interrupted, issue_untimed, sigterm_as_interrupt
from blkreel.replay.plan.extents import Extents
from blkreel.replay.simulated import state as simulated_state

from . import resume_point
from .resume_point import Record, SavedRecord
from .states import State, Step
from .steady_state import ROUNDS, Steadiness, is_steady
from .verify import Writers, verify

_TICK_S = 0.2


@dataclass
class Preparation:
    """Runs the steps of a state. The target must have passed the safety checks before run() is called.

    erase: one of erase.KINDS. by: the command, for the record. restart: do not resume. notify: gets messages about
    what is resumed and what is discarded. resume_hint: the remedy after an interruption.
    """

    target: Target
    state: State
    seed: int
    progress: Progress
    payload: Payload = Payload()
    engine: Engine = run_engine
    erase: str = "discard"
    by: str = "blkreel precondition"
    restart: bool = False
    notify: Callable[[str], None] = lambda text: None
    resume_hint: str = "run the same command again to resume"
    written_bytes: int = 0

    def check(self) -> None:
        """Raise UsageError or BlkreelError if it is impossible, before the drive is changed."""
        if self.target.drive.zoned == "host-managed" and (self.erase == "none" or not self.state.erases):
            raise UsageError(f"{self.target.path} is zoned: its zones are filled from their start on",
                             "let them be reset first: leave out --erase none")
        if self.state.erases:
            erase.check(self.erase, self.target)
        if self.state.name != "fresh":
            return
        if self.erase == "none":
            raise UsageError("the state fresh needs an erase", "choose one: --erase discard")
        if self.erase == "discard" and not self.target.can_erase:
            raise BlkreelError(f"{self.target.path} has no discard, which the state fresh needs",
                               "let the volume pass discards on (dm-crypt: cryptsetup refresh --allow-discards "
                               f"{shlex.quote(self.target.drive.model or 'NAME')}), or use --state full"
                               if self.target.drive.is_volume else
                               "use --erase format, the vendor's tool, or --state full")

    def run(self) -> DriveState:
        """Returns the new state, and saves it for replays. Raises BlkreelError if an I/O fails.

        The state of the drive is unknown while this runs. An interruption or failure is resumed the next time, unless
        the data read back was wrong.
        """
        self.check()
        with held(self.target), sigterm_as_interrupt():
            record = self._resumed_or_new()
            self._saved = SavedRecord(self.target, record, self.state)
            self._rewind_after_power()
            self._left = TimeLeft(self.state)
            drive_state.save(self.target, DriveState(notes=[f"preparing {self.state.name} was not finished"]))
            self._saved.save()
            try:
                for step in self.state.steps[record.step:]:
                    self._run_step(step)
                    self._flush()
                    self._saved.next_step()
                verified = self._verify()
            except KeyboardInterrupt:
                raise Interrupted(f"preparing {self.target.path} was interrupted", self.resume_hint) from None
            self.written_bytes = record.written_bytes
            prepared = self._prepared(verified)
            drive_state.save(self.target, prepared)
            resume_point.forget(self.target)
        return prepared

    @property
    def _record(self) -> Record:
        return self._saved.record

    def _resumed_or_new(self) -> Record:
        """The unfinished record if it is of the same preparation, otherwise a new one."""
        key = resume_point.key_of(self.state, payload=self.payload.account(), erase=self.erase)
        unfinished = resume_point.load(self.target)
        if self.restart or drive_state.load(self.target).name or self.target.drive.zoned:
            # With a state it was finished, and killed before it removed its file. Zones take no row a second time.
            unfinished = None
        if unfinished:
            if unfinished.capacity_bytes != self.target.size_bytes:
                raise BlkreelError(f"{self.target.path} had {format_bytes(unfinished.capacity_bytes)} when its "
                                   f"preparation was interrupted, and has {format_bytes(self.target.size_bytes)} now",
                                   "start over: add --restart")
            description = resume_point.describe(unfinished)
            external_bytes = drive_state.changed_since(self.target, unfinished.counted) or 0
            if unfinished.key != key:
                how = "" if unfinished.name != self.state.name else " with other options"
                self.notify(f"discarding {description}; starting {self.state.name}{how}")
            elif external_bytes < drive_state.OTHERS_LEAST_BYTES:
                self.notify(f"resuming {description}")
                return unfinished
            else:
                self.notify(f"discarding {description}: {format_bytes(external_bytes)} of external writes to the "
                            "drive since then; starting over")
        # A state that erases nothing builds on the previous one.
        before = None if self.state.erases else asdict(drive_state.load(self.target))
        return Record(key, self.state.name, self.target.size_bytes, before=before)

    def _rewind_after_power(self) -> None:
        record = self._record
        rows = record.rows
        if record.power and self._saved.rewind_after_power() and rows != record.rows:
            self.notify("the machine or the drive was restarted: repeating what the drive's cache may have lost")

    def _run_step(self, step: Step) -> None:
        notes = self._record.notes
        if step.plan is None:
            rest(self.target, step.rest_ns, what=step.what, progress=self.progress)
        elif step.erases and self._erased_by_command():
            pass
        elif step.erases and not self.target.can_erase:
            notes.append("not erased: the drive has no discard")
        else:
            self._issue(step)

    def _erased_by_command(self) -> bool:
        """Erase by a command of the drive, or not at all, if so chosen. False: the erase is a discard of the step."""
        if self.erase == "none":
            self._record.notes.append(drive_state.NOT_ERASED_AS_ASKED)
        elif self.erase == "format":
            erase.format_drive(self.target, self.progress)
        elif self.erase == "sanitize":
            erase.sanitize(self.target, self._record.erase_began, self._note_sanitize, self.progress)
        else:
            return False
        return True

    def _note_sanitize(self) -> None:
        self._record.erase_began = True
        self._saved.save()

    def _issue(self, step: Step) -> None:
        """Issue the step, or its rounds until their rate is steady."""
        record = self._record
        assert step.plan is not None
        while record.round < step.rounds and not is_steady(record.rates):
            what = step.what if step.rounds == 1 else f"{step.what}, round {record.round + 1}"
            # Another seed each time, because a drive may detect data that it already holds.
            seed = self.seed + self._saved.begin_engine()
            try:
                untimed = issue_untimed(
                    self.target, step.plan(record.round, record.rows), step=what, total_bytes=step.total_bytes,
                    depth=step.depth, seed=seed, payload=self.payload, progress=self.progress, engine=self.engine,
                    done_bytes=record.done_bytes, on_done=self._saved.take,
                    detail=lambda done_bytes, rate: self._time_left(step, done_bytes, rate),
                    after_interruption=self.resume_hint)
            finally:
                self._saved.end_engine()
            if untimed.refused_discards:
                record.notes.append("not erased: the drive refused its discards")
                return
            if step.rounds == 1:
                return
            record.rates.append(self._saved.round_bytes_per_s)
            self._flush()
            self._saved.next_round()
        last = ", ".join(format_bytes(rate) for rate in record.rates[-ROUNDS:])
        steady = "steady" if Steadiness.of(record.rates).steady else "not steady"
        record.rounds_done = len(record.rates)
        record.notes.append(f"{steady} after {len(record.rates)} rounds (last rates per s: {last})")

    def _time_left(self, step: Step, done_bytes: int, rate: float) -> str:
        self._left.add_rate(step.kind, rate)
        return self._left.words(self._record, done_bytes)

    def _flush(self) -> None:
        """After this all writes so far survive a loss of the drive's power, and the record may state them."""
        if self.target.is_nil:
            return
        with held(self.target) as claim:
            assert claim is not None  # only the nil target has none
            try:
                os.fsync(claim.descriptor)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise BlkreelError(f"flushing {self.target.path} failed: {error.strerror}",
                                       "read the kernel log: dmesg | tail") from error

    def _verify(self) -> int:
        """Number of blocks read back; 0 if that is impossible."""
        if self.target.is_nil:
            self._record.notes.append("not read back: the target holds no data")
            return 0
        try:
            verified = verify(self.target, self.state.filled, self.payload, self.seed, self.progress,
                              0 if self.state.name == "trace" or self.target.drive.zoned else self.target.size_bytes,
                              self._writers())  # beyond the capacity of its zones a drive cannot be read
        except BlkreelError as error:
            # Resuming would fail again.
            resume_point.forget(self.target)
            drive_state.save(self.target, DriveState(notes=[error.message]))
            raise
        if verified.unwritten:
            self._record.notes.append(verified.unwritten)
        return verified.blocks

    def _writers(self) -> Writers:
        record = self._record
        return Writers([self.seed + run for run in range(len(record.engine_steps))], record.engine_steps,
                       self.state.steps, max(1, record.rounds_done))

    def _prepared(self, verified_blocks: int) -> DriveState:
        state, record = self.state, self._record
        filled_bytes, notes = state.filled_bytes, list(record.notes)
        spans: list[list[int]] = []
        if isinstance(state.filled, Extents) and (len(state.filled) > 1 or not filled_bytes):
            spans = [[int(start), int(end)] for start, end in zip(state.filled.start, state.filled.end, strict=True)]
        before = DriveState(**record.before) if record.before else DriveState()
        if before.name:
            notes.append(f"on top of {drive_state.words(before, datetime.now(UTC))}")
            filled_bytes = filled_bytes or (before.filled_bytes if before.covers(before.filled_bytes) else 0)
        if state.permuted:
            notes.append("random writes in one permutation, each block once")
        return DriveState(
            name=state.name, prepared_at=datetime.now(UTC).isoformat(timespec="seconds"), scale=state.scale,
            seed=self.seed, idle_ns=state.rest_ns, filled_bytes=filled_bytes, notes=notes, spans=spans,
            payload=self.payload.account() if state.filled.bytes else None, capacity_bytes=self.target.size_bytes,
            usable_bytes=state.usable_bytes, trace=state.trace, prepared_by=self.by, verified_blocks=verified_blocks,
            erased_by=self.erase if state.erases and not any("not erased" in note for note in notes) else None,
            counted=drive_state.count_now(self.target), identity=state.identity)


def rest(target: Target, duration_ns: int, *, what: str, progress: Progress) -> None:
    """Leave the drive idle. what: the step for the progress, such as `resting`.

    Measured by the clock, so that a suspended machine rests too. On a virtual clock the time passes at once.
    """
    start, duration_s = time.monotonic(), duration_ns / 1e9
    with progress(what, max(duration_s, 1e-3)) as task:
        if target.simulated is None or not target.simulated.is_virtual:
            while (elapsed_s := time.monotonic() - start) < duration_s:
                task.update(elapsed_s, f"for {format_ns(duration_ns)}")
                time.sleep(min(_TICK_S, max(0.0, duration_s - elapsed_s)))
        if target.simulated is not None:
            simulated_state.pass_time(target.simulated, duration_ns)
            task.update(duration_s, f"for {format_ns(duration_ns)}")


class TimeLeft:
    """Estimates the time left from the bytes left, the rates of each kind of step so far, and the idle times."""

    def __init__(self, state: State):
        self._state = state
        self._bytes_per_s: dict[str, float] = {}

    def add_rate(self, kind: str, bytes_per_s: float) -> None:
        if bytes_per_s > 0:
            self._bytes_per_s[kind] = bytes_per_s

    def left(self, record: Record, done_bytes: int) -> tuple[float, bool]:
        """(seconds, whether this is only a lower bound). done_bytes: of the current round.

        A kind of step without a rate counts with the lowest rate of the others, an erase without a rate as 0, and
        rounds with the fewest that a steady state needs; the result is then a lower bound.
        """
        seconds, is_bound = 0.0, False
        for index, step in enumerate(self._state.steps[record.step:], record.step):
            current = index == record.step
            seconds += step.rest_ns / 1e9
            if step.plan is None:
                continue
            left_bytes = step.total_bytes - (done_bytes if current else 0)
            if step.rounds > 1:
                left_bytes += step.total_bytes * max(0, ROUNDS - 1 - (record.round if current else 0))
                is_bound = True
            rate = self._bytes_per_s.get(step.kind)
            if not rate:
                is_bound = True
                rate = 0 if step.erases else self._any_rate()
            seconds += max(0, left_bytes) / rate if rate else 0
        return seconds, is_bound

    def words(self, record: Record, done_bytes: int) -> str:
        """`; 12 min 3 s left in all`; "" while no rate is known."""
        if not self._bytes_per_s:
            return ""
        seconds, is_bound = self.left(record, done_bytes)
        return f"; {'at least ' if is_bound else ''}{format_ns(round(seconds) * 1e9)} left in all"

    def _any_rate(self) -> float:
        rates = [rate for kind, rate in self._bytes_per_s.items() if kind != "erase"]
        return min(rates, default=0.0)
