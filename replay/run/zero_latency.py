"""Load times of a plan on simulated drives: on one without latency, which leaves the think times of the application,
and on its own drive with the computing times divided by FACTORS.

The plans run on simulated drives on the virtual clock. The results do not depend on the machine, and are cached by the
trace's checksum, the options of the plan and the version of planner and engine.
"""

import hashlib
import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from blkreel import __version__
from blkreel.common.errors import BlkreelError
from blkreel.common.files.typed_document import document_of
from blkreel.common.progress import Progress
from blkreel.replay.engine.engine import HELPER, Engine, run_engine
from blkreel.replay.engine.spans import RunSpan
from blkreel.replay.plan import survey_cache
from blkreel.replay.plan.plan import PlannedCounts, TracePlan
from blkreel.replay.simulated.spec import ZERO_LATENCY
from blkreel.traces.format.condition import NO_COMPUTING
from blkreel.traces.format.metadata_types import ZeroLatency

from .simulate import simulate

FACTORS = (1, 2, 4, 8, 16, math.inf)  # of the compute speed
MOST_IOS = 500_000  # of a compute curve: a longer trace would be simulated for minutes
_PLANNER = Path(survey_cache.__file__).parent


def zero_latency(plan: TracePlan, sha256: str | None, progress: Progress,
                 engine: Engine = run_engine) -> dict[str, Any] | None:
    """A document of ZeroLatency, from the cache, or by running the plan. None without a dependent pace, or if the run
    did not complete.

    sha256: of the trace; without it nothing is cached.
    """
    if not any(pace.dependent for pace in plan.paces):
        return None
    key = plan_key(plan, sha256)
    load_time_ns = _cached("zero latency", key).get("load_time_ns")
    if type(load_time_ns) is not int or load_time_ns < 0:
        load_time_ns = _measured(plan, progress, engine)
        if load_time_ns is None:
            return None
        _store("zero latency", key, load_time_ns=load_time_ns)
    return document_of(ZeroLatency(load_time_ns=load_time_ns, engine_version=engine_version()))


@cache
def engine_version() -> str:
    """The version of blkreel and a checksum of the helper and the planner."""
    digest = hashlib.sha256()
    try:
        for path in (HELPER, *sorted(_PLANNER.glob("*.py"))):
            digest.update(path.read_bytes())
        return f"{__version__}+{digest.hexdigest()[:12]}"
    except OSError:
        return __version__


def _measured(plan: TracePlan, progress: Progress, engine: Engine) -> int | None:
    span, counts = RunSpan(finds_late_end=True), PlannedCounts()
    try:
        whole = simulate(plan, ZERO_LATENCY, span.add, progress, "computing the load time without latency", engine,
                         counts)
    except BlkreelError:
        return None  # it must not cost the run that was measured
    return counts.load_time_ns(span) if whole else None


def plan_key(plan: TracePlan, sha256: str | None) -> dict[str, Any]:
    """Everything that determines the times of the plan, as in JSON.

    Of the maps only the copies: a drive without latency takes no time for any offset, and the engine counts overlaps of
    I/Os in flight without delaying them.
    """
    return {"sha256": sha256, "devices": [drive.device for drive in plan.drives], "pace": plan.pace.account(),
            "streams": {str(stream): pace.account() for stream, pace in plan.stream_paces.items()},
            "idle_cap_ns": plan.idle.cap_ns, "without": list(plan.without), "copies": plan.mapping.copies,
            "threads": plan.sharding.account(),
            "observed": plan.observed, "engine": engine_version()}


def _facts_name(kind: str, key: dict[str, Any]) -> str:
    """The name of a cache entry."""
    return f"{kind} {json.dumps(key, sort_keys=True)}"


def _cached(kind: str, key: dict[str, Any]) -> dict[str, Any]:
    facts = survey_cache.load_facts(_facts_name(kind, key)) if key["sha256"] else None
    return facts if facts and facts.get("key") == key else {}


def _store(kind: str, key: dict[str, Any], **facts: Any) -> None:
    if key["sha256"]:
        survey_cache.store_facts(_facts_name(kind, key), {"key": key, **facts})


def compute_curve(plan: TracePlan, sha256: str | None, progress: Progress,
                  engine: Engine) -> list[dict[str, Any]] | None:
    """A document of metadata_types.ComputePoint for each of FACTORS, of a fresh drive; from the cache if it has them.

    None unless the plan runs at dependent pace and at the recorded compute speed on one simulated drive with a virtual
    clock, has at most MOST_IOS, and can be simulated. sha256: of the trace; without it nothing is cached.
    """
    drive = plan.target.simulated
    if (not drive or not drive.is_virtual or len(plan.targets) > 1 or plan.total_ios > MOST_IOS
            or not plan.pace.dependent or plan.pace.compute != 1 or plan.stream_paces):
        return None
    key = {**plan_key(plan, sha256), "drive": drive.identity, "map": plan.mapping.account(), "factors": len(FACTORS)}
    points = list(_cached("compute curve", key).get("points") or ())
    if len(points) == len(FACTORS) and all(isinstance(point, dict) and type(point.get("load_time_ns")) is int
                                           for point in points):
        return points
    points = []
    try:
        for factor in FACTORS:
            span, counts = RunSpan(finds_late_end=True), PlannedCounts()
            faster = replace(plan, pace=replace(plan.pace, compute=factor))
            if not simulate(faster, drive, span.add, progress, "computing load times over compute speed", engine,
                            counts):
                return None
            points.append({"compute": factor if math.isfinite(factor) else NO_COMPUTING,
                           "load_time_ns": counts.load_time_ns(span)})
    except BlkreelError:
        return None  # it must not cost the run that was measured
    _store("compute curve", key, points=points)
    return points
