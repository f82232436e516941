"""Carries a test out: its states, rests and measuring steps in order. Goes on with one that ended early."""

import zlib
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import takewhile

from blkreel.traces.errors import BlkreelError, SafetyError, UsageError
from blkreel.traces.reader import open_trace
from blkreel.traces.steady import is_steady
from blkreel.traces.units import format_bytes

from . import drive_state, safety
from .effect import Interrupted
from .engine import run_engine
from .idle import parse_idle
from .mapping import parse_map
from .pace import parse_pace
from .payload import Payload
from .plan import plan_trace
from .precondition import Preparation
from .recipe_steps import TestStep
from .rest import rest
from .rule_stream import stream_of
from .run import Replay
from .run_directory import RunDirectory
from .safety import held
from .states import State, state_for
from .target import Target
from .termination import terminated_like_interrupted
from .testing_drive import left_as, used_by_others
from .testing_record import DONE, FAILED, SKIPPED, StepRecord, TestRecord, now
from .workload import plan_workload


@dataclass
class Testing:
    """One test on one drive. The steps of `record` are carried out in order; those that are done are left alone.

    destroy, argv: what the user typed, for safety's checks before each step. erase: how states erase, one of
    erase.KINDS. say: is told what a preparation goes on with. on_step(number, steps) is told before each step:
    which it is, from 1, of which.
    """

    __test__ = False

    record: TestRecord
    target: Target
    seed: int
    progress: object
    destroy: str | None = None
    argv: list[str] = field(default_factory=list)
    payload: Payload = Payload()
    engine: object = run_engine
    erase: str = "discard"
    say: object = lambda text: None
    replay_options: dict = field(default_factory=dict)
    on_step: object = lambda number, steps: None

    def __post_init__(self):
        self._asked_to_stop = False
        self._carried_out = 0

    def run(self) -> None:
        """Raises Interrupted or BlkreelError, with what is done so far remembered, and how to go on."""
        with self._drive_held(), terminated_like_interrupted():
            while (step := self.record.unfinished) is not None:
                step = self._begin(step)
                self.on_step(self.record.steps.index(step) + 1, [one.step for one in self.record.steps])
                try:
                    result = self._carry_out(step)
                except KeyboardInterrupt:
                    self._fail(step, "interrupted")
                    raise Interrupted(f"{self._name} was interrupted at {step.step.title!r}", self._go_on) from None
                except BlkreelError as error:
                    self._fail(step, error.message)
                    error.remedy = f"{error.remedy}; then {self._go_on}" if error.remedy else self._go_on
                    raise
                self._finish(step, result)
                self._carried_out += 1
                if self._asked_to_stop and self.record.unfinished is not None:
                    raise Interrupted(f"{self._name} was interrupted after {step.step.title!r}", self._go_on)
        if self.record.head["ended_at"] is None:
            self.record.head["ended_at"] = now()
            self.record.save()

    @contextmanager
    def _drive_held(self):
        """From the first step to the last: a rest that somebody uses for a test of his own is none."""
        with ExitStack() as stack:
            try:
                stack.enter_context(held(self.target))
            except SafetyError as error:
                error.remedy = f"{error.remedy}; then {self._go_on}"
                raise
            yield

    @property
    def _name(self) -> str:
        return f"the test {self.record.head['test']}"

    @property
    def _go_on(self) -> str:
        confirmed = f" --destroy {self.destroy}" if self.destroy else ""
        return f"go on with: blkreel test --resume {self.record.directory}{confirmed}"

    def _begin(self, step: StepRecord) -> StepRecord:
        """The step to carry out: where one was interrupted that wants its state again, the step of that state."""
        interrupted = step.began_at is not None
        if interrupted:
            self._set_aside(step)
        if self._is_spoilt(step, interrupted) or (interrupted and step.step.again == "state"):
            step = self._back_to_state(step)
        self.record.head["drive_left_as"] = left_as(self.target)
        step.began_at, step.status, step.error = now(), FAILED, "did not end"
        self.record.save()
        return step

    def _is_spoilt(self, step: StepRecord, interrupted: bool) -> bool:
        """Whether the state that the step goes on from was written over, while the test was not there.

        Raises SafetyError where that happened while it was: whoever does will do it again.
        """
        if not self._builds_on_state(step):
            return False
        how = used_by_others(self.target, self.record.head.get("drive_left_as"),
                             self._label(step.step) if interrupted else None, counted=not self._carried_out)
        if how and self._carried_out:
            raise SafetyError(f"{self.target.path} was used by others while {self._name} was under way: {how}",
                              f"see that nobody else uses it, then {self._go_on}")
        if how:
            self.say(f"{self.target.path} was used since: {how}; beginning again from its state")
        return how is not None

    def _builds_on_state(self, step: StepRecord) -> bool:
        """Whether a state was made before it, of which something is still to be measured."""
        steps = self.record.steps
        at = steps.index(step)
        left = takewhile(lambda one: one.step.do != "state", steps[at:])
        return any(one.step.do == "state" for one in steps[:at]) and any(
            one.step.measures and one.status not in (DONE, SKIPPED) for one in left)

    def _back_to_state(self, interrupted: StepRecord) -> StepRecord:
        steps = self.record.steps
        at = steps.index(interrupted)
        start = next((i for i in range(at, -1, -1) if steps[i].step.do == "state"), at)
        for step in steps[start:at + 1]:
            if step is not interrupted and step.began_at is not None:
                self._set_aside(step)
            step.reset()
        self._unskip(steps[start:])
        return steps[start]

    @staticmethod
    def _unskip(steps) -> None:
        """The rounds that were left out because those before them were steady may be wanted now."""
        for step in steps:
            if step.status == SKIPPED:
                step.reset()

    def _set_aside(self, step: StepRecord) -> None:
        """Keep what an interrupted step recorded, under another name."""
        step.interrupted += 1
        if step.directory is None:
            return
        path = self.record.directory / step.directory
        if path.exists():
            path.rename(path.with_name(f"{path.name}.interrupted-{step.interrupted}"))

    def _fail(self, step, message) -> None:
        step.status, step.error, step.ended_at = FAILED, message, now()
        self.record.save()

    def _finish(self, step, result) -> None:
        step.status, step.error, step.ended_at, step.result = DONE, None, now(), result
        self._settle_rounds(step)
        then = self.record.head.get("drive_left_as")
        if step.step.do == "state" or not used_by_others(self.target, then, self._label(step.step)):
            self.record.head["drive_left_as"] = left_as(self.target)  # otherwise the next step says so
        self.record.save()

    def _settle_rounds(self, step) -> None:
        """Skip the rounds that are left, once those done are steady."""
        loop = step.step.until_steady
        if not loop:
            return
        rounds = [other for other in self.record.steps if other.step.role == step.step.role and
                  _without(other.step.labels, loop) == _without(step.step.labels, loop)]
        rates = [other.result["bytes_per_s"] for other in rounds if other.status == DONE]
        steady = is_steady(rates)
        step.result["steady"] = steady
        if steady:
            for other in rounds[rounds.index(step) + 1:]:
                other.status, other.error = SKIPPED, f"steady after {len(rates)} rounds"

    def _carry_out(self, record: StepRecord) -> dict:
        step = record.step
        if step.do == "state":
            return self._prepare(step)
        if step.do == "rest":
            duration_ns = self._last_active_ns(record) if step.time_ns is None else step.time_ns
            rest(self.target, duration_ns, what="resting", progress=self.progress)
            return {"rest_ns": duration_ns}
        return self._measure(record)

    def _last_active_ns(self, record) -> int:
        """How long the measuring step before this one took."""
        before = self.record.steps[:self.record.steps.index(record)]
        return next(step.result["wall_ns"] for step in reversed(before) if step.step.measures and step.result)

    def _prepare(self, step: TestStep) -> dict:
        state = state_of(step, self.target, self.seed)
        known = drive_state.load(self.target)
        if self._is_kept(known, state):
            return {**asdict(known), "kept": True}
        self._check(writes=True)
        preparation = Preparation(self.target, state, self.seed, self.progress, self.payload, self.engine,
                                  erase=self.erase, by=self._name, say=self.say, goes_on="")
        return {**asdict(preparation.run()), "kept": False}

    def _is_kept(self, known, state) -> bool:
        """Whether the drive is in that state already, and nothing has come over it since."""
        payload = self.payload.account() if state.filled.bytes else None
        return (known.is_as_prepared(state.identity, payload) and known.was_erased_by(self.erase)
                and known.idle_ns >= state.rest_ns and not drive_state.written_by_others(self.target, known))

    def _measure(self, record: StepRecord) -> dict:
        step = record.step
        plan = trace_plan(step.trace, step.idle, step.pace, step.map, self.target) if step.do == "replay" else (
            self._rule_plan(step))
        self._check(writes=plan.writes)
        replay = Replay(plan, RunDirectory(self.record.directory / record.directory, force=False),
                        self._label(step), _seed(self.seed, step.id), self.progress,
                        payload=self.payload, engine=self.engine, last_use=True, about=self._about(step),
                        **self.replay_options)
        account = replay.run()
        if account["partial"] == "interrupted":
            raise KeyboardInterrupt
        self._asked_to_stop = replay.asked_to_stop
        if account["partial"]:
            raise BlkreelError(f"{step.title} on {self.target.path} ended early: {account['partial']}",
                               "look at: dmesg | tail")
        return {"wall_ns": account["wall_ns"], "ops": account["completed_ops"], "bytes": account["moved_bytes"],
                "bytes_per_s": account["moved_bytes"] * 1e9 / max(account["wall_ns"], 1),
                "verdict": account["verdict"]["level"]}

    def _rule_plan(self, step):
        streams = [stream_of(spec, stop_ns=step.time_ns)
                   for spec in step.streams]
        about = {"path": self.record.head["test"], "streams": [asdict(spec) for spec in step.streams]}
        return plan_workload(streams, [self.target], about=about, prefill=False, stop_ns=step.time_ns)

    def _label(self, step) -> str:
        """Of a step's run, and what is remembered of the drive as to who wrote to it."""
        return f"{self.record.head['label']}: {step.title}"

    def _about(self, step) -> dict:
        return {"test": self.record.head["test"], "step": step.id, "role": step.role, "labels": step.labels}

    def _check(self, *, writes) -> None:
        safety.check(self.target, writes=writes, destroy=self.destroy, argv=self.argv)


def check_traces(steps: list[TestStep], target: Target) -> None:
    """Raise where a step replays a trace that is not named, cannot be read, or does not go onto the drive."""
    for trace in dict.fromkeys((step.trace, step.idle, step.pace, step.map) for step in steps if step.do == "replay"):
        if not trace[0]:
            raise UsageError("this test replays a trace, and none is named",
                             "name one: --set trace=game.parquet, or --set trace=sample:game-load")
        trace_plan(*trace, target)


def trace_plan(trace: str, idle: str, pace: str, wanted_map: str | None, target: Target):
    return plan_trace(open_trace(trace), target, pace=parse_pace(pace, target.drive), stream_paces={},
                      idle=parse_idle(idle), wanted_map=parse_map(wanted_map or None), device=None, prefill=True,
                      threads=1, on_rows=lambda rows: None)


def check_states(steps: list[TestStep], target: Target, erase: str) -> None:
    """Raise where a step puts the drive into a state that there is none of, that does not fit it, or cannot be had."""
    for step in steps:
        if step.do == "state":
            Preparation(target, state_of(step, target, 0), 0, None, erase=erase).check()


def state_of(step: TestStep, target: Target, seed: int) -> State:
    """spans are told to every state, and are of those that hold nothing but a test's data."""
    of_data = step.state.partition("+")[0] == "data"
    return state_for(step.state, target.size_bytes, target.block_bytes, seed=seed, rest_ns=step.time_ns,
                     spans=step.spans if of_data else None)


def check_unchanged(head: dict, target: Target) -> None:
    """Raise UsageError where a test is to go on on another drive than it was begun on."""
    then, drive = head["drive"], target.drive
    same = (then["serial_hash"] == drive.serial_hash and then["size_bytes"] == drive.size_bytes and
            (bool(drive.serial_hash) or then["path"] == drive.path or then["backing_file"] == drive.backing_file))
    if not same:
        was = f"{then['model'] or then['path']} of {format_bytes(then['size_bytes'])}"
        raise UsageError(f"this test was begun on {was}, and {target.path} is another drive",
                         "name the same drive: --on DEVICE")
    if head.get("block_bytes", target.block_bytes) != target.block_bytes:
        raise UsageError(f"this test was begun with blocks of {head['block_bytes']} bytes, and {target.path} has "
                         f"{target.block_bytes} now: it was formatted since", "begin it anew, with another -o")


def _without(labels, name) -> dict:
    return {key: value for key, value in labels.items() if key != name}


def _seed(seed, step_id) -> int:
    """Of the data of a step: no two write the same, which a drive could find to be there already."""
    return zlib.crc32(f"{seed}/{step_id}".encode())
