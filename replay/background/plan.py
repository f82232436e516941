"""The plan of a replay beside backgrounds: one run with a lane for each, on parts of the drive of their own."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from blkreel.common.errors import BlkreelError, UsageError
from blkreel.common.units import format_bytes
from blkreel.replay.drive import state as drive_state
from blkreel.replay.drive.target import Target
from blkreel.replay.engine.engine import MAX_DEPTH, Batch, Lane
from blkreel.replay.plan.mapping import Part, end_of
from blkreel.replay.plan.pace import ALL_IDLE, ORIGINAL, IdlePolicy, Pace
from blkreel.replay.plan.plan import LEAD_NS, DrivePlan, Plan, PlannedCounts, TracePlan
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.plan.survey import choose_device
from blkreel.replay.prepare.states import overwritten_bytes
from blkreel.replay.streams.generate import check
from blkreel.replay.streams.spec import Bursts, StreamSpec
from blkreel.traces.format.metadata_types import Thread
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.trace import Trace

from .spec import BackgroundSpec
from .streams import Background, GeneratedWrites, LoopedTrace

_ALIGNMENT_BYTES = 1 << 20
_MOST_SPAN_BYTES = 8 << 30  # of generated writes, as in the mixed burst
_LEAST_BLOCKS = 16
# Of the n-th repetition: its phase is n times this, modulo 1. Any number of them is spread evenly over the period.
_PHASE_STEP = 0.6180339887498949

PlanForeground = Callable[[Part | None, str | None], TracePlan]


@dataclass(frozen=True)
class PlanBeside(Plan):
    """The plan of the foreground, and backgrounds that end with it. lead_ns: the foreground starts so much later."""

    measured: TracePlan
    backgrounds: tuple[Background, ...]
    lead_ns: int
    drives: tuple[DrivePlan, ...]
    pace: Pace
    idle: IdlePolicy
    without: tuple[str, ...] = ()
    is_open: bool = True

    @property
    def foreground(self) -> TracePlan:
        return self.measured

    @property
    def trace_plans(self) -> tuple[TracePlan, ...]:
        looped = (background for background in self.backgrounds if isinstance(background, LoopedTrace))
        return (self.measured, *(background.plan for background in looped))

    @property
    def start_ns(self) -> int:
        """When the foreground starts."""
        return LEAD_NS + self.lead_ns

    @property
    def paces(self) -> list[Pace]:
        return self.measured.paces

    @property
    def duration_ns(self) -> int | None:
        foreground_ns = self.measured.duration_ns
        return None if foreground_ns is None else self.lead_ns + foreground_ns

    @property
    def source_threads(self) -> dict[str, Thread]:
        return self.measured.source_threads

    def lanes(self, counts: PlannedCounts | None = None) -> list[Lane]:
        lanes = self.measured.lanes(counts)
        left = (MAX_DEPTH - sum(background.depth for background in self.backgrounds)) // len(lanes)
        return [*(replace(lane, batches=self._later(lane.batches), depth=min(lane.depth, left), start_ns=self.start_ns)
                  for lane in lanes),
                *(background.lane(lanes[index % len(lanes)].thread)
                  for index, background in enumerate(self.backgrounds))]

    def at_phase(self, phase: float) -> "PlanBeside":
        """The same plan with all backgrounds at this phase of their periods."""
        return replace(self, backgrounds=tuple(replace(background, phase=phase) for background in self.backgrounds))

    def repetition(self, number: int) -> "PlanBeside":
        """The plan of the n-th repetition, from 1 on. Each starts at another phase of the backgrounds."""
        return self.at_phase((number - 1) * _PHASE_STEP % 1)

    @property
    def has_phases(self) -> bool:
        return any(background.period_ns is not None for background in self.backgrounds)

    def pace_account(self, counts: PlannedCounts | None = None) -> dict[str, Any]:
        return self.measured.pace_account(counts)

    def source(self) -> dict[str, Any]:
        return self.measured.source()

    def source_sha256(self) -> str | None:
        return self.measured.source_sha256()

    def forget_blocks(self) -> None:
        super().forget_blocks()
        self.measured.forget_blocks()

    def _later(self, batches: Any) -> Iterator[Batch]:
        for batch in batches:
            due_ns = batch["due_ns"]
            yield {**batch, "due_ns": due_ns + self.lead_ns * (due_ns >= 0)}


def plan_beside(plan_foreground: PlanForeground, target: Target, specs: Sequence[BackgroundSpec], *, lead_ns: int,
                map_name: str | None, prefill: bool, seed: int) -> PlanBeside:
    """Decide where the foreground and each background go, and plan them; opens no drive.

    plan_foreground(part, map_name): the plan of the foreground on a part of the target, None for all of it. On a drive
    in the state `client` the backgrounds get the region that the state overwrote at random, if they fit; otherwise the
    bytes behind the foreground. Raises UsageError or BlkreelError for a background that is empty or does not fit.
    """
    if target.drive.zoned:
        raise UsageError(f"{target.path} is zoned, and a background would write anywhere: --background",
                         "leave it out, or use a drive without zones")
    sources = [_Source.of(spec, target) for spec in specs]
    needed_bytes = sum(source.room_bytes for source in sources)
    state = drive_state.load(target)
    overwritten = overwritten_bytes(state.name or "", target.size_bytes, target.block_bytes)
    if overwritten and needed_bytes <= overwritten:
        first = _aligned(overwritten)
        foreground = plan_foreground(Part(first, target.size_bytes - first), map_name)
        free = Part(0, overwritten)
    else:
        foreground = plan_foreground(None, map_name)
        free = _behind(foreground, target)
        if map_name is None and free.size_bytes < needed_bytes and foreground.mapping.name == "identity":
            foreground = plan_foreground(None, "compact")
            free = _behind(foreground, target)
    if free.size_bytes < needed_bytes:
        names = " and ".join(spec.text for spec in specs)
        raise BlkreelError(
            f"--background {names} needs {format_bytes(needed_bytes)}, and {target.path} has "
            f"{format_bytes(free.size_bytes)} free beside {foreground.trace.name}", "replay it on a larger drive"
            + ("" if map_name is None else ", or omit --map"))
    if not foreground.survey.bytes.get("read"):
        raise UsageError(f"{foreground.trace.name} reads nothing: there is nothing to measure beside a background",
                         "name a trace with reads, or omit --background")
    backgrounds = _placed(sources, free, foreground, target, prefill, seed)
    drive = replace(foreground.drives[0], background_prefill=tuple(background.prefill for background in backgrounds),
                    background_writes=any(background.writes for background in backgrounds))
    return PlanBeside(foreground, backgrounds, lead_ns, (drive, *foreground.drives[1:]), foreground.pace,
                      foreground.idle, foreground.without)


@dataclass(frozen=True)
class _Source:
    """What a background needs. least_bytes: of its part of the drive. trace: None for generated writes."""

    spec: BackgroundSpec
    least_bytes: int
    trace: Trace | None = None
    device: int = 0

    @property
    def room_bytes(self) -> int:
        """least_bytes up to where the next part may start."""
        return _aligned(self.least_bytes)

    @classmethod
    def of(cls, spec: BackgroundSpec, target: Target) -> "_Source":
        if spec.trace is None:
            if spec.block_bytes % target.block_bytes:
                raise UsageError(f"--background {spec.text}: blocks of {spec.block_bytes:,} bytes are not whole blocks "
                                 f"of {target.path}, which has {target.block_bytes}", "use for example block=16KiB")
            return cls(spec, spec.span_bytes or _LEAST_BLOCKS * spec.block_bytes)
        trace = open_trace(spec.trace)
        device = choose_device(trace, spec.device, f"--background {spec.text},device=")
        # In a plan of its own, the size of its blocks packed together on this target.
        plan = _plan_of(trace, device, target, None)
        moved = plan.survey.bytes
        if not moved.get("write") and not moved.get("read"):
            raise UsageError(f"--background {spec.text}: it neither reads nor writes", "name a trace with writes")
        if spec.rate_bytes_s and not moved.get("write"):
            raise UsageError(f"--background {spec.text}: it writes nothing, so that it has no rate",
                             "omit rate=, or name a trace with writes")
        if not spec.rate_bytes_s and not plan.trace_survey.duration_ns:
            raise UsageError(f"--background {spec.text}: its I/Os have one submit time, so that it has no rate",
                             "add a rate: rate=110MB/s" if moved.get("write") else "name a longer trace")
        return cls(spec, end_of(plan.mapping, plan.survey.touched, target), trace, device)


def _plan_of(trace: Trace, device: int, target: Target, part: Part | None) -> TracePlan:
    return plan_trace(trace, {device: target}, pace=ORIGINAL, idle=ALL_IDLE, map_name="compact", part=part)


def _behind(foreground: TracePlan, target: Target) -> Part:
    """The bytes of the target behind the foreground."""
    end = end_of(foreground.mapping, foreground.survey.touched, target)
    first = min(_aligned(end), target.size_bytes)
    return Part(first, target.size_bytes - first)


def _placed(sources: Sequence[_Source], free: Part, foreground: TracePlan, target: Target, prefill: bool,
            seed: int) -> tuple[Background, ...]:
    """The backgrounds side by side. Generated writes without a span share what the others leave."""
    open_ended = sum(source.trace is None and source.spec.span_bytes is None for source in sources)
    left_bytes = free.size_bytes - sum(source.room_bytes for source in sources)
    number, start_bytes = max(0, foreground.trace.greatest("stream")) + 1, free.start_bytes
    backgrounds: list[Background] = []
    for source in sources:
        spec, size_bytes = source.spec, source.least_bytes
        if source.trace is None and spec.span_bytes is None:
            share_bytes = left_bytes // open_ended // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES
            size_bytes = min(_MOST_SPAN_BYTES, source.room_bytes + share_bytes)
            size_bytes = size_bytes // spec.block_bytes * spec.block_bytes
        part = Part(start_bytes, size_bytes)
        if source.trace is None:
            stream = _stream(spec, number, part, seed)
            check(stream)
            backgrounds.append(GeneratedWrites(spec, number, part, stream=stream))
        else:
            plan = _plan_of(source.trace, source.device, target, part)
            if not prefill and len(plan.drives[0].prefill):
                unwritten = format_bytes(plan.drives[0].prefill.bytes)
                raise UsageError(f"--background {spec.text}: it reads {unwritten} that nothing has written",
                                 "omit --no-prefill")
            backgrounds.append(LoopedTrace(spec, number, part, plan=plan))
        number += 1
        start_bytes += _aligned(size_bytes)
    return tuple(backgrounds)


def _aligned(end_bytes: int) -> int:
    """The first place for a part at or behind end_bytes."""
    return -(-end_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _stream(spec: BackgroundSpec, number: int, part: Part, seed: int) -> StreamSpec:
    bursts = Bursts(spec.written_bytes, spec.every_ns) if spec.every_ns is not None else None
    return StreamSpec(number, f"background {number}", "write", spec.access, spec.block_bytes, part.start_bytes,
                      part.size_bytes, spec.depth, seed, bursts=bursts,
                      rate_iops=None if bursts else spec.written_bytes / spec.block_bytes, background=True)
