"""Up to what intensity this machine issues I/Os when they are due: plans of rising rate against a target of nothing.

The limits are those of a run's verdict, so what is found faithful here is what a verdict would call so, as far as
this machine is concerned; a drive's driver takes processor time besides.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from blkreel.traces.errors import BlkreelError

from .certificate import CAUSES
from .drive_state import state_directory
from .engine import EngineOptions, run_engine
from .environment import cpu_model
from .lateness import DRIFT_LIMIT_NS, HOST_MAX_LIMIT_NS, HOST_P99_LIMIT_NS, Lateness
from .streams import plan_batch

RATES_IOPS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000)
PATTERNS = {"poisson": 1, "bursts": 64}  # I/Os that are due at one moment
STEP_S = 0.35
TRIES = 3  # a rate holds where most of so many tries do: one disturbance says nothing of the rate
BUDGET_S = 27.0

EXCELLENT_P50_NS = 1_000
EXCELLENT_P99_NS = 20_000

LEVELS = ("not faithful", "faithful", "excellent")
_LEAD_NS = 1_000_000
_NULL_BYTES = 1 << 30


@dataclass(frozen=True)
class Step:
    """One rate of a pattern: the middle one of its tries. cause: what made I/Os late, None where none were."""

    pattern: str
    iops: int
    level: str
    p50_ns: int
    p99_ns: int
    max_ns: int
    drift_ns: int
    cause: str | None


def plan_of(pattern: str, iops: int, seconds: float, seed: int) -> dict[str, np.ndarray]:
    """Reads whose moments come at random (exponential gaps), one or 64 of them at each."""
    at_once = PATTERNS[pattern]
    moments = max(2, round(iops * seconds / at_once))
    gaps_ns = np.random.default_rng(seed).exponential(at_once * 1e9 / iops, moments)
    due_ns = np.repeat(_LEAD_NS + np.cumsum(gaps_ns).astype(np.int64), at_once)
    return plan_batch(np.zeros(len(due_ns), np.int64), 4096, 0, due_ns=due_ns, source_row=np.arange(len(due_ns)))


def level_of(lateness: dict, drift_ns: int) -> str:
    """By the limits of a verdict, and by stricter ones."""
    if (lateness["host_p99_ns"] > HOST_P99_LIMIT_NS or lateness["host_max_ns"] > HOST_MAX_LIMIT_NS
            or drift_ns > DRIFT_LIMIT_NS):
        return "not faithful"
    if lateness["p50_ns"] <= EXCELLENT_P50_NS and lateness["p99_ns"] <= EXCELLENT_P99_NS:
        return "excellent"
    return "faithful"


def calibrate(on_step: Callable[[Step], None] = lambda step: None, engine=run_engine,
              clock: Callable[[], float] = time.monotonic) -> dict:
    """Try rate after rate until one is not held, each pattern by itself. Takes less than half a minute.

    Raises BlkreelError where the engine cannot run here.
    """
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
            "limits": {"host_p99_ns": HOST_P99_LIMIT_NS, "host_max_ns": HOST_MAX_LIMIT_NS,
                       "drift_ns": DRIFT_LIMIT_NS, "excellent_p50_ns": EXCELLENT_P50_NS,
                       "excellent_p99_ns": EXCELLENT_P99_NS},
            "steps": [asdict(step) for step in steps],
            "faithful_iops": {pattern: _held(steps, pattern, "faithful") for pattern in PATTERNS},
            "excellent_iops": {pattern: _held(steps, pattern, "excellent") for pattern in PATTERNS}}


def _step(pattern, iops, engine) -> Step:
    tries: list[Step] = []
    while not tries or (len(tries) < TRIES and not _decided(tries)):
        tries.append(_try(pattern, iops, len(tries), engine))
    tries.sort(key=lambda one: LEVELS.index(one.level))
    # The middle one; of two that agree, either.
    return tries[len(tries) // 2]


def _decided(tries):
    levels = [one.level for one in tries]
    return max(levels.count(level) for level in levels) > TRIES // 2


def _try(pattern, iops, number, engine) -> Step:
    lateness = Lateness()
    totals = engine(EngineOptions(null_bytes=_NULL_BYTES, realtime=True),
                    [plan_of(pattern, iops, STEP_S, number + 1)],
                    lambda rows: lateness.add(rows["due_ns"], rows["submit_ns"], rows["flags"]), lambda note: None)
    if totals.get("stopped"):
        raise BlkreelError(f"the calibration was ended: {totals['stopped']}", "start it again")
    told, drift_ns = lateness.account(), lateness.drift_ns()
    causes = (totals.get("watch") or {}).get("causes") or {}
    worst = max(causes, key=lambda name: (causes[name]["late_ops"], causes[name]["total_ns"]), default=None)
    return Step(pattern, iops, level_of(told, drift_ns), told["p50_ns"], told["p99_ns"], told["max_ns"], drift_ns,
                CAUSES.get(worst, worst))


def _held(steps, pattern, level) -> int:
    """The highest rate below which none was worse than the level; 0 where the first was."""
    held = 0
    for step in steps:
        if step.pattern != pattern:
            continue
        if LEVELS.index(step.level) < LEVELS.index(level):
            break
        held = step.iops
    return held


def remember(calibration: dict) -> None:
    """Raises BlkreelError where the directory cannot be written."""
    path = _file()
    temporary = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(calibration, indent=1) + "\n")
        temporary.replace(path)
    except OSError as error:
        raise BlkreelError(f"cannot remember the calibration in {path.parent}: {error.strerror}",
                           "name another directory: export BLKREEL_STATE_DIR=DIR") from error


def recall() -> dict | None:
    """The last calibration of this machine; None where there is none, or of another processor."""
    try:
        found = json.loads(_file().read_text())
        return found if found["cpu_model"] == cpu_model() and found["faithful_iops"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def warning_for(ios: int, duration_ns: int | None) -> str | None:
    """Why a plan of so many I/Os in that time may be too much for this machine; None where nothing speaks for it."""
    known = recall()
    if known is None or not duration_ns:
        return None
    iops = ios * 1e9 / duration_ns
    limit = max(known["faithful_iops"].values())
    if iops <= limit:
        return None
    return (f"the plan asks for {iops:,.0f} I/Os a second on average, and this machine was found faithful up to "
            f"{limit:,}; take a quieter or faster machine, or see: blkreel doctor --calibrate")


def _file() -> Path:
    return state_directory() / "calibration.json"
