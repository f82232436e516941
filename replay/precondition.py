"""Putting a drive into a state, remembering it, and going on with what was interrupted."""

import errno
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from blkreel.traces.errors import BlkreelError, UsageError
from blkreel.traces.steady import ROUNDS, Steadiness, is_steady
from blkreel.traces.units import format_bytes

from . import drive_state, erase, preparation_progress
from .drive_state import DriveState
from .effect import Interrupted, carry_out
from .engine import run_engine
from .extents import Extents
from .payload import Payload
from .preparation_progress import Noted, Record
from .rest import rest
from .safety import held
from .states import State
from .target import Target
from .termination import terminated_like_interrupted
from .time_left import TimeLeft
from .verify import Writers, verify


@dataclass
class Preparation:
    """Carries the steps of a state out. The target was found safe before run() is called.

    erase: one of erase.KINDS. by: who asks for it, for the record. restart: not to go on with what was interrupted.
    say: is told what it goes on with, and what it drops. verifies: whether it reads back what it wrote. goes_on: what
    whoever interrupted it is told.
    """

    target: Target
    state: State
    seed: int
    progress: object
    payload: Payload = Payload()
    engine: object = run_engine
    erase: str = "discard"
    by: str = "blkreel precondition"
    restart: bool = False
    say: object = lambda text: None
    verifies: bool = True
    goes_on: str = "the same command goes on from there"
    written_bytes: int = 0

    def check(self) -> None:
        """Raise where it cannot be carried out, before anything is touched."""
        if self.state.erases:
            erase.check(self.erase, self.target)
        if self.state.name != "fresh":
            return
        if self.erase == "none":
            raise UsageError("a drive that is not erased does not get fresh", "choose another way: --erase discard")
        if self.erase == "discard" and not self.target.can_discard:
            raise BlkreelError(f"{self.target.path} has no discard, so it cannot be made fresh",
                               "erase it with its maker's tool, or --erase format, or choose --state full")

    def run(self) -> DriveState:
        """The new state, which is remembered for replays. Raises BlkreelError where an I/O fails.

        From the first write to the last the drive's state is unknown. What was interrupted goes on the next time,
        after a failure too, unless what was read back was wrong.
        """
        self.check()
        with held(self.target), terminated_like_interrupted():
            record = self._take_up()
            self._noted = Noted(self.target, record, self.state)
            self._after_power()
            self._left = TimeLeft(self.state)
            drive_state.save(self.target, DriveState(notes=[f"preparing {self.state.name} did not end"]))
            self._noted.save()
            try:
                for step in self.state.steps[record.step:]:
                    self._carry_out(step)
                    self._flush()
                    self._noted.next_step()
                verified = self._verify()
            except KeyboardInterrupt:
                raise Interrupted(f"preparing {self.target.path} was interrupted", self.goes_on) from None
            self.written_bytes = record.written_bytes
            prepared = self._prepared(verified)
            drive_state.save(self.target, prepared)
            preparation_progress.forget(self.target)
        return prepared

    @property
    def _record(self) -> Record:
        return self._noted.record

    def _take_up(self) -> Record:
        """What was begun, if it was this; else a new record."""
        key = preparation_progress.key_of(self.state, payload=self.payload.account(), erase=self.erase)
        found = preparation_progress.load(self.target)
        if self.restart or drive_state.load(self.target).name:
            found = None  # where the drive has a state it came to its end, and died before it had tidied up
        if found and found.capacity_bytes != self.target.size_bytes:
            raise BlkreelError(f"{self.target.path} had {format_bytes(found.capacity_bytes)} when its preparation was "
                               f"interrupted, and has {format_bytes(self.target.size_bytes)} now",
                               "begin anew: add --restart")
        others_bytes = found and drive_state.written_since(self.target, found.counted) or 0
        if found and found.key == key and others_bytes < drive_state.OTHERS_LEAST_BYTES:
            self.say(f"going on with {preparation_progress.describe(found)}")
            return found
        if found and found.key == key:
            self.say(f"dropping {preparation_progress.describe(found)}: since then others wrote "
                     f"{format_bytes(others_bytes)} to the drive; beginning anew")
        elif found:
            how = "" if found.name != self.state.name else ", which was asked for otherwise"
            self.say(f"dropping {preparation_progress.describe(found)}{how}; beginning {self.state.name}")
        # What a state that erases nothing builds upon.
        before = None if self.state.erases else asdict(drive_state.load(self.target))
        return Record(key, self.state.name, self.target.size_bytes, before=before)

    def _after_power(self):
        record = self._record
        rows = record.rows
        if record.power and self._noted.rewind_after_power() and rows != record.rows:
            self.say("machine or drive were started anew since: going back by what the drive's cache may have lost")

    def _carry_out(self, step) -> None:
        notes = self._record.notes
        if step.plan is None:
            rest(self.target, step.rest_ns, what=step.what, progress=self.progress)
        elif step.erases and self._erased_otherwise():
            pass
        elif step.erases and not self.target.can_discard:
            notes.append("not erased: the drive has no discard")
        else:
            self._issue(step)

    def _erased_otherwise(self) -> bool:
        """Whether the erase is no discard of ours; then it is done.

        A simulated drive is discarded as any other, which leaves it its clock and its heat.
        """
        if self.erase == "none":
            self._record.notes.append(drive_state.NOT_ERASED_AS_ASKED)
        elif self.erase == "format":
            erase.format_drive(self.target, self.progress)
        elif self.erase == "sanitize":
            erase.sanitize(self.target, self._record.erase_began, self._note_sanitize, self.progress)
        else:
            return False
        return True

    def _note_sanitize(self):
        self._record.erase_began = True
        self._noted.save()

    def _issue(self, step) -> None:
        """The step, or its rounds until they are steady."""
        record = self._record
        while record.round < step.rounds and not is_steady(record.rates):
            what = step.what if step.rounds == 1 else f"{step.what}, round {record.round + 1}"
            # Another seed each time: the same data again could be found to be there already.
            seed = self.seed + self._noted.begin_engine()
            try:
                effect = carry_out(
                    self.target, step.plan(record.round, record.rows), what=what, total_bytes=step.total_bytes,
                    depth=step.depth, seed=seed, payload=self.payload, progress=self.progress, engine=self.engine,
                    done_bytes=record.done_bytes, on_done=self._noted.take,
                    more=lambda done_bytes, rate: self._time_left(step, done_bytes, rate),
                    after_interruption=self.goes_on)
            finally:
                self._noted.end_engine()
            if effect.refused_discards:
                record.notes.append("not erased: the drive refused its discards")
                return
            if step.rounds == 1:
                return
            record.rates.append(self._noted.round_bytes_per_s)
            self._flush()
            self._noted.next_round()
        last = ", ".join(format_bytes(rate) for rate in record.rates[-ROUNDS:])
        steady = "steady" if Steadiness.of(record.rates).steady else "not steady"
        record.rounds_done = len(record.rates)
        record.notes.append(f"{steady} after {len(record.rates)} rounds (last ones: {last} per s)")

    def _time_left(self, step, done_bytes, rate) -> str:
        self._left.saw(step.kind, rate)
        return self._left.words(self._record, done_bytes)

    def _flush(self) -> None:
        """What was done so far outlives the drive's power: the record may say so from here on."""
        if self.target.is_nil:
            return
        file = os.open(self.target.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise BlkreelError(f"a flush of {self.target.path} failed: {error.strerror}",
                                   "look at: dmesg | tail") from error
        finally:
            os.close(file)

    def _verify(self) -> int:
        """How many blocks were read back; none where nothing could be."""
        if self.target.is_nil:
            self._record.notes.append("not read back: there is no drive that holds data")
            return 0
        if not self.verifies:
            return 0
        try:
            found = verify(self.target, self.state.filled, self.payload, self.seed, self.progress,
                           self.target.size_bytes if self.state.name != "trace" else 0, self._writers())
        except BlkreelError as error:
            # To go on would find the same again.
            preparation_progress.forget(self.target)
            drive_state.save(self.target, DriveState(notes=[error.message]))
            raise
        if found.beyond:
            self._record.notes.append(found.beyond)
        return found.blocks

    def _writers(self) -> Writers:
        record = self._record
        return Writers([self.seed + run for run in range(len(record.engine_steps))], record.engine_steps,
                       self.state.steps, max(1, record.rounds_done))

    def _prepared(self, verified_blocks) -> DriveState:
        state, record = self.state, self._record
        filled_bytes, spans, notes = state.filled_bytes, [], list(record.notes)
        if isinstance(state.filled, Extents) and (len(state.filled) > 1 or not filled_bytes):
            spans = [[int(one[0]), int(one[1])] for one in zip(state.filled.start, state.filled.end, strict=True)]
        before = DriveState(**record.before) if record.before else DriveState()
        if before.name:
            notes.append(f"on what was {drive_state.words(before, datetime.now(UTC))}")
            filled_bytes = filled_bytes or (before.filled_bytes if before.covers(before.filled_bytes) else 0)
        if state.permuted:
            notes.append("each block written at random once, as one permutation")
        return DriveState(
            name=state.name, prepared_at=datetime.now(UTC).isoformat(timespec="seconds"), scale=state.scale,
            seed=self.seed, idle_ns=state.rest_ns, filled_bytes=filled_bytes, notes=notes, spans=spans,
            payload=self.payload.account() if state.filled.bytes else None, capacity_bytes=self.target.size_bytes,
            usable_bytes=state.usable_bytes, trace=state.trace, prepared_by=self.by, verified_blocks=verified_blocks,
            erased_by=self.erase if state.erases and not any("not erased" in note for note in notes) else None,
            counted=drive_state.count_now(self.target), identity=state.identity)
