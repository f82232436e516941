"""The highest rate at which this machine issues I/Os on time, by plans of rising rate against the nil target.

The nil target needs no processor time for a drive's driver.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from blkreel.common.errors import BlkreelError
from blkreel.common.files.json_file import write_json
from blkreel.common.files.typed_document import read_json
from blkreel.common.installation import state_directory, state_errors
from blkreel.common.units import format_share
from blkreel.replay.engine.engine import Engine, EngineOptions, Lane, run_engine
from blkreel.replay.fidelity.certificate import CAUSES
from blkreel.replay.fidelity.lateness import DRIFT_LIMIT_NS, HOST_MAX_LIMIT_NS, HOST_P99_LIMIT_NS, Lateness
from blkreel.replay.plan.batch import plan_batch
from blkreel.replay.telemetry.sensors.host_counters import OtherWork, read_other_work
from blkreel.traces.format import metadata_types
from blkreel.traces.format.metadata_types import StallCause

from .environment import cpu_model

RATES_IOPS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000)
PATTERNS = {"poisson": 1, "bursts": 64}  # I/Os due at one time
STEP_S = 0.35
TRIES = 3  # the majority counts, because one disturbance must not decide a rate
BUDGET_S = 27.0

EXCELLENT_P50_NS = 1_000
EXCELLENT_P99_NS = 20_000

# Of one CPU, during a calibration that is stored.
OTHERS_LIMIT, STEAL_LIMIT = 0.10, 0.02

LEVELS = ("not faithful", "faithful", "excellent")
_LEAD_NS = 1_000_000
_NIL_BYTES = 1 << 30


@dataclass(frozen=True)
class Step:
    """One rate of a pattern: the median of its tries. cause: of late I/Os, None without."""

    pattern: str
    iops: int
    level: str
    p50_ns: int
    p99_ns: int
    max_ns: int
    drift_ns: int
    cause: str | None


class Calibration(TypedDict):
    """faithful_iops, excellent_iops: by pattern, the highest rate of that level or better; 0 without one.

    busy: why other work on the machine limits the rates, None on an idle machine.
    """

    version: int
    made_at: str
    cpu_model: str | None
    busy: str | None
    limits: dict[str, int]
    steps: list[dict[str, Any]]
    faithful_iops: dict[str, int]
    excellent_iops: dict[str, int]


def plan_of(pattern: str, iops: int, seconds: float, seed: int) -> dict[str, np.ndarray]:
    """Reads with exponential gaps between the deadlines, 1 or 64 reads at each deadline."""
    burst = PATTERNS[pattern]
    deadlines = max(2, round(iops * seconds / burst))
    gaps_ns = np.random.default_rng(seed).exponential(burst * 1e9 / iops, deadlines)
    due_ns = np.repeat(_LEAD_NS + np.cumsum(gaps_ns).astype(np.int64), burst)
    return plan_batch(np.zeros(len(due_ns), np.int64), 4096, 0, due_ns=due_ns, source_row=np.arange(len(due_ns)))


def level_of(lateness: metadata_types.Lateness, drift_ns: int) -> str:
    """`faithful` by the limits of lateness, `excellent` by stricter ones."""
    if (lateness["host_p99_ns"] > HOST_P99_LIMIT_NS or lateness["host_max_ns"] > HOST_MAX_LIMIT_NS
            or drift_ns > DRIFT_LIMIT_NS):
        return "not faithful"
    if lateness["p50_ns"] <= EXCELLENT_P50_NS and lateness["p99_ns"] <= EXCELLENT_P99_NS:
        return "excellent"
    return "faithful"


def calibrate(on_step: Callable[[Step], None] = lambda step: None, engine: Engine = run_engine,
              clock: Callable[[], float] = time.monotonic,
              other_work: Callable[[], OtherWork] = read_other_work) -> Calibration:
    """Raise the rate of each pattern until it is not faithful, for less than half a minute.

    Raises BlkreelError if the engine cannot run.
    """
    started_s, before = time.monotonic(), other_work()
    until = clock() + BUDGET_S
    steps: list[Step] = []
    for pattern in PATTERNS:
        for iops in RATES_IOPS:
            if clock() > until:
                break
            step = _step(pattern, iops, engine)
            steps.append(step)
            on_step(step)
            if step.level == "not faithful":
                break
    return {"version": 1, "made_at": datetime.now(UTC).isoformat(timespec="seconds"), "cpu_model": cpu_model(),
            "busy": busy_words(before, other_work(), time.monotonic() - started_s),
            "limits": {"host_p99_ns": HOST_P99_LIMIT_NS, "host_max_ns": HOST_MAX_LIMIT_NS,
                       "drift_ns": DRIFT_LIMIT_NS, "excellent_p50_ns": EXCELLENT_P50_NS,
                       "excellent_p99_ns": EXCELLENT_P99_NS},
            "steps": [asdict(step) for step in steps],
            "faithful_iops": {pattern: _highest_iops(steps, pattern, "faithful") for pattern in PATTERNS},
            "excellent_iops": {pattern: _highest_iops(steps, pattern, "excellent") for pattern in PATTERNS}}


def busy_words(before: OtherWork, after: OtherWork, seconds: float) -> str | None:
    """Why the machine was busy, None if it was not: its rates are then those of what other work left."""
    other_share = (after.others_ns - before.others_ns) / max(seconds * 1e9, 1)
    steal = (after.steal_ns - before.steal_ns) / max(seconds * 1e9, 1)
    if other_share > OTHERS_LIMIT:
        return f"other programs used {format_share(other_share)} of a CPU (limit {OTHERS_LIMIT * 100:g} %)"
    if steal > STEAL_LIMIT:
        return f"CPU stolen by a hypervisor for {format_share(steal)} of the time (limit {STEAL_LIMIT * 100:g} %)"
    return None


def _step(pattern: str, iops: int, engine: Engine) -> Step:
    tries: list[Step] = []
    while not tries or (len(tries) < TRIES and not _decided(tries)):
        tries.append(_try(pattern, iops, len(tries), engine))
    tries.sort(key=lambda step: LEVELS.index(step.level))
    return tries[len(tries) // 2]


def _decided(tries: list[Step]) -> bool:
    levels = [step.level for step in tries]
    return max(levels.count(level) for level in levels) > TRIES // 2


def _try(pattern: str, iops: int, number: int, engine: Engine) -> Step:
    lateness = Lateness()
    totals = engine(EngineOptions(nil_bytes=_NIL_BYTES, realtime=True),
                    [Lane([plan_of(pattern, iops, STEP_S, number + 1)])],
                    lambda rows: lateness.add(rows["due_ns"], rows["submit_ns"], rows["flags"]), lambda note: None)
    if totals.get("stopped"):
        raise BlkreelError(f"calibration stopped: {totals['stopped']}", "run it again: blkreel doctor --calibrate")
    account, drift_ns = lateness.account(), lateness.drift_ns()
    if account is None:
        raise BlkreelError("calibration failed: the engine issued no I/O", "run it again: blkreel doctor --calibrate")
    causes: dict[str, StallCause] = (totals.get("stall_monitor") or {}).get("causes") or {}
    worst = max(causes, key=lambda name: (causes[name]["late_ops"], causes[name]["total_ns"]), default="")
    return Step(pattern, iops, level_of(account, drift_ns), account["p50_ns"], account["p99_ns"], account["max_ns"],
                drift_ns, CAUSES.get(worst, worst) or None)


def _highest_iops(steps: list[Step], pattern: str, level: str) -> int:
    """The highest rate of the level or better, with no worse rate below it; 0 without one."""
    highest = 0
    for step in steps:
        if step.pattern != pattern:
            continue
        if LEVELS.index(step.level) < LEVELS.index(level):
            break
        highest = step.iops
    return highest


def remember(calibration: Calibration) -> None:
    """Store it, unless the machine was busy. Raises BlkreelError if the directory cannot be written."""
    if calibration.get("busy"):
        return
    path = _file()
    with state_errors(f"cannot save the calibration in {path.parent}"):
        write_json(path, calibration)


def recall() -> Calibration | None:
    """The last calibration of this machine; None without one, or if it is of another processor."""
    try:
        calibration = read_json(_file(), Calibration)
    except (OSError, ValueError):
        return None
    return calibration if calibration["cpu_model"] == cpu_model() and calibration["faithful_iops"] else None


def warning_for(ios: int, duration_ns: int | None) -> str | None:
    """A warning if the mean rate of a plan is above the calibrated rate of this machine, otherwise None."""
    calibration = recall()
    if calibration is None or not duration_ns:
        return None
    iops, limit = ios * 1e9 / duration_ns, max(calibration["faithful_iops"].values())
    if iops <= limit:
        return None
    return (f"mean rate of the plan {iops:,.0f} IOPS (calibrated limit of this machine {limit:,} IOPS): use an idle or "
            "faster machine, or measure again: blkreel doctor --calibrate")


def _file() -> Path:
    return state_directory() / "calibration.json"
