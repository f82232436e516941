"""Runs the steps of a benchmark on a drive in order, and resumes an interrupted benchmark."""

import shlex
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from blkreel.benchmarks.recipe.run_stream import estimated_ios, stream_of
from blkreel.benchmarks.step import DONE, FAILED, SKIPPED, BenchmarkStep
from blkreel.common.errors import BlkreelError, SafetyError, UsageError
from blkreel.common.files.output_lock import directory_locked
from blkreel.common.files.safe_files import rename
from blkreel.common.progress import Progress
from blkreel.replay.drive import safety
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.claim import held
from blkreel.replay.drive.state import DriveState
from blkreel.replay.drive.target import Target
from blkreel.replay.drive.zones import zones_of
from blkreel.replay.engine.engine import Engine, Payload, run_engine
from blkreel.replay.engine.untimed_io import Interrupted, sigterm_as_interrupt
from blkreel.replay.plan.extents import MappedBlocks
from blkreel.replay.plan.mapping import parse_map
from blkreel.replay.plan.pace import parse_idle, parse_pace
from blkreel.replay.plan.plan import Plan, TracePlan
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.plan.survey import choose_device
from blkreel.replay.prepare.precondition import Preparation, rest
from blkreel.replay.prepare.states import State, state_for
from blkreel.replay.prepare.steady_state import is_steady
from blkreel.replay.run.account import WITHOUT
from blkreel.replay.run.baseline import has_background_writes, run_with_baseline
from blkreel.replay.run.directory import RunDirectory
from blkreel.replay.run.run import Replay, ReplayOptions
from blkreel.replay.streams.workload import plan_workload
from blkreel.replay.telemetry.options import TelemetryOptions
from blkreel.traces.blocksets.block_set import BlockSet, max_memory_bytes
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import COMPRESSED_RUN_SCHEMA
from blkreel.traces.format.trace_survey import COLUMNS, select
from blkreel.traces.spool.space import shortage

from .drive import external_use, is_named_only, state_snapshot
from .record import BenchmarkRecord, now

StepResult = dict[str, Any]  # as BenchmarkStep.result
# Of a state `data`: each is listed in the state of the drive and in test.json.
_MAX_SPANS = 100_000


@dataclass
class BenchmarkRunner:
    """Runs one benchmark on one drive: the steps of `record` that are not done.

    destroy: from the command line, for the safety checks before each step. erase: one of erase.KINDS. notify:
    gets messages for the user. on_step(number, steps): called before each step, with its number from 1.
    """

    record: BenchmarkRecord
    target: Target
    seed: int
    progress: Progress
    destroy: str | None = None
    payload: Payload = Payload()
    engine: Engine = run_engine
    erase: str = "discard"
    notify: Callable[[str], None] = lambda text: None
    telemetry: TelemetryOptions = TelemetryOptions()
    on_step: Callable[[int, list[BenchmarkStep]], None] = lambda number, steps: None

    def __post_init__(self) -> None:
        self._asked_to_stop = False
        self._has_run_a_step = False

    def run(self) -> None:
        """Raises Interrupted or BlkreelError, with the command that resumes; finished steps are in test.json then.

        Raises OutputInUse if another command runs a test in the directory.
        """
        with directory_locked(self.record.directory), self._claimed(), sigterm_as_interrupt():
            while (step := self.record.unfinished) is not None:
                step = self._begin(step)
                self.on_step(self.record.steps.index(step) + 1, self.record.steps)
                try:
                    result = self._run_step(step)
                except KeyboardInterrupt:
                    self._fail(step, "interrupted")
                    raise Interrupted(f"{self._name} was interrupted at {step.title!r}", self._resume) from None
                except BlkreelError as error:
                    self._fail(step, error.message)
                    error.remedy = f"{error.remedy}; then {self._resume}" if error.remedy else self._resume
                    raise
                self._finish(step, result)
                self._has_run_a_step = True
                if self._asked_to_stop and self.record.unfinished is not None:
                    raise Interrupted(f"{self._name} was interrupted after {step.title!r}", self._resume)
        if self.record.header["ended_at"] is None:
            self.record.header["ended_at"] = now()
            self.record.save()

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """Claim the drive from the first step to the last: another test during a rest would spoil the rest."""
        with ExitStack() as stack:
            try:
                stack.enter_context(held(self.target))
            except SafetyError as error:
                error.remedy = f"{error.remedy}; then {self._resume}"
                raise
            yield

    @property
    def _name(self) -> str:
        return f"the test {self.record.header['test']}"

    @property
    def _resume(self) -> str:
        consent = ["--on", str(self.target.path)] if is_named_only(self.target) else []
        consent += ["--destroy", self.destroy] if self.destroy else []
        return f"resume with: {shlex.join(['blkreel', 'test', '--resume', str(self.record.directory), *consent])}"

    def _begin(self, step: BenchmarkStep) -> BenchmarkStep:
        """The step to run: for an interrupted step that resumes from its state, the step of that state."""
        interrupted = step.started_at is not None
        if interrupted:
            self._set_aside(step)
        if self._lost_state(step, interrupted) or (interrupted and step.resume_from == "state"):
            step = self._back_to_state(step)
        self.record.header["drive_after"] = state_snapshot(self.target)
        step.started_at, step.status, step.error = now(), FAILED, "did not end"
        self.record.save()
        return step

    def _lost_state(self, step: BenchmarkStep, interrupted: bool) -> bool:
        """Whether others changed the state that the step starts from, while the test was not running.

        Raises SafetyError if that happened while the test was running, since it would happen again.
        """
        if not self._needs_state(step):
            return False
        use = external_use(self.target, self.record.header.get("drive_after"),
                           self._label(step) if interrupted else None, counted=not self._has_run_a_step)
        if use and self._has_run_a_step:
            raise SafetyError(f"{self.target.path} was used by others during {self._name}: {use}",
                              f"stop other use of the drive, then {self._resume}")
        if use:
            self.notify(f"{self.target.path} was used since the interruption: {use}; starting again from its state")
        return use is not None

    def _needs_state(self, step: BenchmarkStep) -> bool:
        """Whether a state was prepared before the step that a step not yet measured needs."""
        steps = self.record.steps
        index = steps.index(step)
        same_state = takewhile(lambda later: later.do != "state", steps[index:])
        return any(earlier.do == "state" for earlier in steps[:index]) and any(
            later.measures and later.status not in (DONE, SKIPPED) for later in same_state)

    def _back_to_state(self, interrupted: BenchmarkStep) -> BenchmarkStep:
        steps = self.record.steps
        end = steps.index(interrupted)
        start = next((i for i in range(end, -1, -1) if steps[i].do == "state"), end)
        for step in steps[start:end + 1]:
            if step is not interrupted and step.started_at is not None:
                self._set_aside(step)
            step.reset()
        for step in steps[start:]:
            if step.status == SKIPPED:  # whether it is skipped again depends on the new rounds
                step.reset()
        return steps[start]

    def _set_aside(self, step: BenchmarkStep) -> None:
        """Keep the run of an interrupted step under another name."""
        step.interrupted += 1
        if step.directory is None:
            return
        path = self.record.directory / step.directory
        if path.exists():
            rename(path, f"{path.name}.interrupted-{step.interrupted}")

    def _fail(self, step: BenchmarkStep, message: str) -> None:
        step.status, step.error, step.ended_at = FAILED, message, now()
        self.record.save()

    def _finish(self, step: BenchmarkStep, result: StepResult) -> None:
        step.status, step.error, step.ended_at, step.result = DONE, None, now(), result
        if step.until_steady:
            self._skip_if_steady(step, step.until_steady, result)
        before = self.record.header.get("drive_after")
        # After external use the old snapshot stays, and the next step reports it.
        if step.do == "state" or not external_use(self.target, before, self._label(step)):
            self.record.header["drive_after"] = state_snapshot(self.target)
        self.record.save()

    def _skip_if_steady(self, step: BenchmarkStep, loop: str, result: StepResult) -> None:
        """Skip the remaining rounds of the loop if the rates of the finished rounds are steady."""
        def group(of: BenchmarkStep) -> object:
            return of.role, {key: value for key, value in of.labels.items() if key != loop}

        rounds = [candidate for candidate in self.record.steps if group(candidate) == group(step)]
        rates = [turn.result["bytes_per_s"] for turn in rounds if turn.status == DONE and turn.result]
        result["steady"] = is_steady(rates)
        if result["steady"]:
            for later in rounds[rounds.index(step) + 1:]:
                later.status, later.error = SKIPPED, f"steady after {len(rates)} rounds"

    def _run_step(self, step: BenchmarkStep) -> StepResult:
        if step.do == "state":
            return self._prepare(step)
        if step.do == "rest":
            # None: that of the last measuring step before it.
            duration_ns = step.time_ns if step.time_ns is not None else next(
                int(earlier.result["wall_ns"]) for earlier in self._before(step) if earlier.measures and earlier.result)
            rest(self.target, duration_ns, what="resting", progress=self.progress)
            return {"rest_ns": duration_ns}
        return self._measure(step)

    def _before(self, step: BenchmarkStep) -> Iterator[BenchmarkStep]:
        """The steps before it, the last one first."""
        return reversed(self.record.steps[:self.record.steps.index(step)])

    def _prepare(self, step: BenchmarkStep) -> StepResult:
        state = state_of(step, self.target, self.seed)
        current = drive_state.load(self.target)
        if self._is_reusable(current, state):
            return {**asdict(current), "reused": True}
        self._check(writes=True)
        preparation = Preparation(self.target, state, self.seed, self.progress, self.payload, self.engine,
                                  erase=self.erase, by=self._name, notify=self.notify, resume_hint="")
        return {**asdict(preparation.run()), "reused": False}

    def _is_reusable(self, current: DriveState, state: State) -> bool:
        """Whether the drive is still in that state, as prepared and rested."""
        payload = self.payload.account() if state.filled.bytes else None
        return (current.is_as_prepared(state.identity, payload) and current.was_erased_by(self.erase)
                and current.idle_ns >= state.rest_ns and not drive_state.written_by_others(self.target, current))

    def _measure(self, step: BenchmarkStep) -> StepResult:
        assert step.directory is not None
        plan = self._replay_plan(step) if step.do == "replay" else self._workload_plan(step)
        self._check(writes=plan.writes)
        # A seed for each step: a drive could detect data that an earlier step wrote.
        baseline_plan = self._baseline_plan(step) if step.baseline == "auto" else None
        replay = Replay(plan, RunDirectory(self.record.directory / step.directory, force=False),
                        ReplayOptions(self._label(step), zlib.crc32(f"{self.seed}/{step.id}".encode()), self.payload,
                                      telemetry=self.telemetry, engine=self.engine), self.progress, last_use=True,
                        about={"test": self.record.header["test"], "step": step.id, "role": step.role,
                               "labels": step.labels})
        try:
            # The baseline last: reads alone leave the state, and the drive at rest, so that it would not be restored.
            account, asked_to_stop = (
                run_with_baseline(replay, baseline_plan, between=lambda: self._prepare_again(step), baseline_last=True)
                if baseline_plan else replay.issue())
        except Interrupted:
            raise KeyboardInterrupt from None
        if account["partial"] == "interrupted":
            raise KeyboardInterrupt
        self._asked_to_stop = asked_to_stop
        if account["partial"]:
            raise BlkreelError(f"{step.title} on {self.target.path} ended early: {account['partial']}",
                               "look at: dmesg | tail")
        return {"wall_ns": account["wall_ns"], "ops": account["completed_ops"], "bytes": account["moved_bytes"],
                "bytes_per_s": account["moved_bytes"] * 1e9 / max(account["wall_ns"], 1),
                "verdict": account["verdict"]["level"]}

    def _baseline_plan(self, step: BenchmarkStep) -> Plan | None:
        """The plan of a replay step without its writes; None if no reads run beside background writes."""
        trace = open_trace(step.trace)
        if not has_background_writes(trace, [choose_device(trace, None)]):
            return None
        return self._replay_plan(step, WITHOUT)

    def _replay_plan(self, step: BenchmarkStep, without: tuple[str, ...] = ()) -> Plan:
        """The plan of a replay step. Blocks that the trace reads are not written first if the drive's state holds them
        all: writing them again would change that state."""
        plan = trace_plan(step.trace, step.idle, step.pace, step.map, self.target, without)
        state = drive_state.load(self.target)
        return replace(plan, drives=tuple(
            replace(drive, prefill=MappedBlocks(), unwritten=drive.prefill) if state.covers_blocks(drive.prefill)
            else drive for drive in plan.drives))

    def _prepare_again(self, step: BenchmarkStep) -> None:
        """Put the drive back into the state from which the step started, unless nothing was written since."""
        prepared = next((earlier for earlier in self._before(step) if earlier.do == "state"), None)
        if prepared is not None:
            self._prepare(prepared)

    def _workload_plan(self, step: BenchmarkStep) -> Plan:
        streams = [stream_of(spec, stop_ns=step.time_ns) for spec in step.streams]
        about = {"path": self.record.header["test"], "streams": [asdict(spec) for spec in step.streams]}
        return plan_workload(streams, self.target, about=about, stop_ns=step.time_ns)

    def _label(self, step: BenchmarkStep) -> str:
        """The label of the step's run, also in the remembered state of the drive."""
        return f"{self.record.header['label']}: {step.title}"

    def _check(self, *, writes: bool) -> None:
        safety.check(self.target, writes=writes, destroy=self.destroy)


def check_traces(steps: list[BenchmarkStep], target: Target) -> None:
    """Raises BlkreelError if the trace of a replay step is missing, cannot be read, or does not fit the drive."""
    for step in steps:
        if step.baseline not in ("auto", "none"):
            raise UsageError(f"invalid baseline: {step.baseline!r}", "use baseline=auto or baseline=none")
    for trace in dict.fromkeys((step.trace, step.idle, step.pace, step.map) for step in steps if step.do == "replay"):
        if not trace[0]:
            raise UsageError("no trace to replay", "set one: --set trace=game.parquet, or --set trace=sample:game-load")
        trace_plan(*trace, target)


def space_warning(output: Path, steps: list[BenchmarkStep]) -> str | None:
    return shortage(output, [open_trace(step.trace).rows if step.do == "replay" else estimated_ios(step)
                             for step in steps if step.measures], COMPRESSED_RUN_SCHEMA)


def trace_plan(trace: str, idle: str, pace: str, map_name: str | None, target: Target,
               without: tuple[str, ...] = ()) -> TracePlan:
    return plan_trace(open_trace(trace), target, pace=parse_pace(pace, target.drive), stream_paces={},
                      idle=parse_idle(idle), map_name=parse_map(map_name or None), device=None, prefill=True,
                      threads=1, on_rows=lambda rows: None, without=without)


def check_states(steps: list[BenchmarkStep], target: Target, erase: str, progress: Progress) -> None:
    """Raises BlkreelError for a state that is unknown, does not fit the drive, or that the drive cannot get."""
    for step in steps:
        if step.do == "state":
            Preparation(target, state_of(step, target, 0), 0, progress, erase=erase).check()


def state_of(step: BenchmarkStep, target: Target, seed: int) -> State:
    is_data = step.state.partition("+")[0] == "data"
    replays = dict.fromkeys((replay.trace, replay.idle, replay.pace, replay.map) for replay in step.replays)
    spans = [*step.spans, *_touched_spans([trace_plan(*replay, target) for replay in replays], target)]
    return state_for(step.state, target.size_bytes, target.block_bytes, seed=seed, rest_ns=step.time_ns,
                     spans=spans if is_data else None, zones=zones_of(target))


def _touched_spans(plans: list[TracePlan], target: Target) -> list[tuple[int, int]]:
    """The ranges of the drive that the traces read or write, at most _MAX_SPANS: beyond that in larger blocks."""
    touched = BlockSet(max_memory_bytes=sum(max_memory_bytes(plan.trace.footer.size_bytes) for plan in plans))
    for plan in plans:
        (drive,) = plan.drives
        for batch in plan.trace.batches(COLUMNS):
            io, _, _ = select(batch, drive.device, 0)
            start, end = drive.mapping.map(io["offset_bytes"], io["length_bytes"])
            for copy in range(drive.mapping.copies):
                touched.add(start + copy * drive.mapping.stride_bytes, end + copy * drive.mapping.stride_bytes)
    block_bytes = max(4096, target.block_bytes)
    end_bytes = target.size_bytes // block_bytes * block_bytes
    while len(blocks := touched.grown(block_bytes)) > _MAX_SPANS and block_bytes < 32 << 20:
        block_bytes *= 2
    return [(first, min(last, end_bytes)) for start, end in blocks.ranges()
            for first, last in zip(start.tolist(), end.tolist(), strict=True) if first < end_bytes]
