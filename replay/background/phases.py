"""A background at several phases of its period: one replay is one of them, and on another phase it may cost less.

On simulated drives with a virtual clock the others are replayed too, each from the state before the run. On a real
drive each repetition starts at another phase.
"""

from collections.abc import Callable
from typing import TypedDict

from blkreel.common.progress import Progress
from blkreel.replay.drive.target import engine_options
from blkreel.replay.engine.engine import Batch, Engine, EngineOptions, Payload
from blkreel.replay.engine.spans import ReadTimes, RunSpan
from blkreel.replay.plan.plan import PlannedCounts
from blkreel.replay.simulated import state as simulated
from blkreel.replay.simulated.state import SimulatedState

from .plan import PlanBeside

PHASES = 5


class PhaseTimes(TypedDict):
    """Of the foreground: load_time_ns of its workload I/O, read_wait_ns of its reads."""

    phase: float
    load_time_ns: int
    read_wait_ns: int


def states_before(plan: PlanBeside) -> list[SimulatedState] | None:
    """The states of the plan's drives; None if they are not simulated on a virtual clock, or if there are no phases."""
    drives = [target.simulated for target in plan.targets]
    if not plan.has_phases or not all(drive and drive.is_virtual for drive in drives):
        return None
    return [simulated.load(drive) for drive in drives if drive]


def other_phases(plan: PlanBeside, states: list[SimulatedState], seed: int, payload: Payload, progress: Progress,
                 engine: Engine, foreground_of: Callable[[Batch], tuple[Batch, Batch | None]]) -> list[PhaseTimes]:
    """The times at the PHASES - 1 phases that divide the period evenly with that of the plan.

    states: of states_before(). The drives keep the state that the run left. Raises BlkreelError if the engine fails.
    """
    after = states_before(plan)
    own = plan.backgrounds[0].phase
    times = []
    try:
        with progress("replaying other phases of the background", PHASES - 1) as task:
            for number in range(1, PHASES):
                _store(plan, states)
                times.append(_times_at(plan.at_phase((own + number / PHASES) % 1), seed, payload, engine,
                                       foreground_of))
                task.update(number)
    finally:
        if after:
            _store(plan, after)
    return times


def _store(plan: PlanBeside, states: list[SimulatedState]) -> None:
    for target, state in zip(plan.targets, states, strict=True):
        if target.simulated:
            simulated.save(target.simulated, state)


def _times_at(plan: PlanBeside, seed: int, payload: Payload, engine: Engine,
              foreground_of: Callable[[Batch], tuple[Batch, Batch | None]]) -> PhaseTimes:
    span, reads, counts = RunSpan(finds_late_end=True), ReadTimes(), PlannedCounts()

    def take(rows: Batch) -> None:
        foreground, _ = foreground_of(rows)
        span.add(foreground)
        reads.add(foreground)

    engine(EngineOptions(**engine_options(plan.targets), seed=seed, may_write=True, payload=payload),
           plan.lanes(counts), take, lambda note: None)
    account = reads.account()
    return {"phase": plan.backgrounds[0].phase, "load_time_ns": counts.load_time_ns(span),
            "read_wait_ns": account["wait_ns"] if account else 0}
