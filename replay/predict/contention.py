"""What writes cost reads on a fitted drive: the keys that runs beside a background show, and a slowdown predicted.

A drive shares its link between both directions, and a read waits for programs on its die. Which of the two it is on a
real drive, or whether reads just take longer beside writes, a search decides (Nelder and Mead, 1965).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from blkreel.common.errors import TraceError
from blkreel.common.progress import Progress
from blkreel.replay.background.plan import PlanBeside, plan_beside
from blkreel.replay.background.spec import parse_background
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import Batch
from blkreel.replay.engine.spans import RunSpan
from blkreel.replay.fidelity.queue_metrics import READ, WRITE
from blkreel.replay.plan.idle import IdlePolicy
from blkreel.replay.plan.pace import DEPENDENT
from blkreel.replay.plan.plan import TracePlan
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.run.records import foreground_of
from blkreel.replay.run.simulate import simulate
from blkreel.replay.simulated.spec import SimulatedDrive
from blkreel.traces.format.metadata_types import Background
from blkreel.traces.format.trace import Trace

from .model import MAX_SLOWDOWN, MIN_LATENCY_NS, FittedModel

_SIMULATIONS = 50
_SHORT_WRITE_NS = 20e3
_USUAL_CHANNELS = (8, 32)
_PROGRAMS_NS = (3e5, 1e6, 3e6, 1e7)
# From such a value on a link limits nothing, and below the least program time no read waits for it.
_FREE_LINK, _SHORT_PROGRAM_NS = 1e11, 2e3
# Of the values that are searched: write latency in ns, write bandwidth and link in bytes/s, program in ns, slowdown.
_LEAST = np.array([MIN_LATENCY_NS, 1e4, 1e5, 1e3, 1.0])
_MOST = np.array([60e9, 1e12, 1e12, 1e9, MAX_SLOWDOWN])


def with_contention(model: FittedModel, fastest_write: float,
                    misfit: Callable[[FittedModel], float]) -> FittedModel:
    """The model with the least misfit that a search from several causes of contention finds.

    fastest_write: bytes/s of the faster writes beside the reads. misfit: of the runs, alone and beside a background.
    Latency and bandwidth of the reads stay. Runs with one read at a time do not show the channels, which are the dies
    of programs: more of them are tried.
    """
    from scipy.optimize import minimize  # takes half a second to load

    read_bandwidth = model.bandwidth[READ]
    channels = [model.channels, *(count for count in _USUAL_CHANNELS if count > model.channels)]
    causes = [(model.channels, 1e12, 1e3, model.read_slowdown), (model.channels, read_bandwidth, 1e3, 1.0),
              *((count, 1e12, program_ns, 1.0) for count in channels for program_ns in _PROGRAMS_NS)]

    def model_at(place: np.ndarray, count: int) -> FittedModel:
        values = np.clip(2.0 ** np.clip(place, -60, 60), _LEAST, _MOST).tolist()
        latency = [*model.latency_ns]
        latency[WRITE] = values[0]
        return replace(model, channels=count, latency_ns=latency, bandwidth=[read_bandwidth, values[1]],
                       link=values[2] if values[2] < _FREE_LINK else None,
                       program_ns=values[3] if values[3] > _SHORT_PROGRAM_NS else None, read_slowdown=values[4])

    starts = [(np.log2([_SHORT_WRITE_NS, fastest_write, *cause]), count) for count, *cause in causes]
    at, count = min(starts, key=lambda start: misfit(model_at(*start)))
    simplex = at + np.vstack([np.zeros(len(at)), np.diag([-1.0, -1.0, 0.3, 1.0, 0.5])])
    found = minimize(lambda place: misfit(model_at(place, count)), at, method="Nelder-Mead", options={
        "maxfev": _SIMULATIONS, "xatol": 0.02, "fatol": 1e-3, "initial_simplex": simplex})
    return model_at(found.x, count)


def load_time_beside(trace: Trace, backgrounds: Sequence[Background], drive: SimulatedDrive, device: int | None,
                     idle: IdlePolicy, progress: Progress) -> int:
    """Load time in ns of a trace on the drive, beside the backgrounds of a run at dependent pace.

    Raises BlkreelError if it cannot be simulated, such as without the trace of a background.
    """
    target = find_target(drive.spec)

    def foreground(part: Any, map_name: str | None) -> TracePlan:
        return plan_trace(trace, target, pace=DEPENDENT, idle=idle, map_name=map_name, prefill=False, device=device,
                          part=part)

    plan: PlanBeside = plan_beside(
        foreground, target, [parse_background(background.spec) for background in backgrounds],
        lead_ns=backgrounds[0].lead_ns, map_name=None, prefill=True, seed=1).at_phase(backgrounds[0].phase)
    span = RunSpan()

    def take(rows: Batch) -> None:
        span.add(foreground_of(rows)[0])

    if not simulate(plan, drive, take, progress, "predicting beside the background"):
        raise TraceError(f"{trace.path}: its replay beside a background cannot be simulated",
                         f"check it: blkreel check {trace.path}")
    return span.load_time_ns


def measured_misfit(measured_ns: np.ndarray, simulated_ns: np.ndarray, op: np.ndarray) -> float:
    """Mean of |log2(simulated / measured)| of reads and writes alike, and of the sum over the reads, which decides
    their throughput."""
    off = np.abs(np.log2(np.maximum(simulated_ns, 1) / np.maximum(measured_ns, 1)))
    kinds = [off[op == kind].mean() for kind in (READ, WRITE) if (op == kind).any()]
    sums = [float(times[op == READ].sum()) for times in (simulated_ns, measured_ns)]
    return float(np.mean(kinds)) + abs(float(np.log2(max(sums[0], 1) / max(sums[1], 1))))
